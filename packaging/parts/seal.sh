# Checksums of everything in dist, and a signature over them.

# Before anything is built: a mistake is not found after half an hour.
check_release_key() {
  local key=${POSTHORN_RELEASE_KEY:-}
  [ -z "$key" ] || [ -r "$key" ] || fail "POSTHORN_RELEASE_KEY: $key cannot be read; nothing was built"
}

seal() {
  (
    cd "$out"
    rm -f SHA256SUMS SHA256SUMS.minisig
    find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs -r -d '\n' sha256sum >SHA256SUMS
    cat SHA256SUMS
  )
  if [ -z "${POSTHORN_RELEASE_KEY:-}" ]; then
    echo "UNSIGNED: POSTHORN_RELEASE_KEY is not set. For a release, set it to the file with the secret key of minisign."
    return
  fi
  need_apt minisign minisign
  printf '%s\n' "${POSTHORN_RELEASE_KEY_PASSWORD:-}" |
    minisign -S -s "$POSTHORN_RELEASE_KEY" -m "$out/SHA256SUMS" -t "posthorn $version" >/dev/null ||
    fail "minisign could not sign SHA256SUMS: is POSTHORN_RELEASE_KEY_PASSWORD right?"
  echo "signed: $out/SHA256SUMS.minisig"
}
