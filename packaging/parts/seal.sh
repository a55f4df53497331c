# Checksums of everything in dist, and a signature over them.

# Before anything is built: a mistake is not found after half an hour. A signature says that these files are the release,
# so they must be made from what is committed, by this build, and from nothing else.
check_release() {
  local key=${POSTHORN_RELEASE_KEY:-}
  [ -n "$key" ] || return 0
  refuse() { fail "$*; nothing was built. Packages for tests need no signature: unset POSTHORN_RELEASE_KEY"; }
  [ -r "$key" ] || refuse "POSTHORN_RELEASE_KEY: $key cannot be read"
  [ -z "$binary" ] || refuse "--binary: a release has the program that this build makes"
  [ -z "$fast" ] || refuse "--fast: a release is compressed well"
  [ "$version" = "$(workspace_version)" ] || refuse "--version: a release has the version of Cargo.toml, $(workspace_version)"
  if is_unreleased "$version"; then
    refuse "CHANGELOG.md says that $version is not released: write the date there, and commit it"
  fi
  sources=$(state_of_sources) || refuse "a release needs the repository of git that it is made from"
  [ "$(wc -l <<<"$sources")" = 1 ] || refuse "these files are not as they were committed: $(tail -n +2 <<<"$sources" | xargs)"
  local others
  others=$(find "$out" -mindepth 1 -maxdepth 1 ! -path "$stage" -printf '%f\n' | LC_ALL=C sort | xargs)
  [ -z "$others" ] || refuse "$out has files already, which would be signed, too: $others. Remove them first"
  local trial
  trial=$(mktemp -d)
  echo trial >"$trial/file"
  if ! sign "$trial/file" >"$trial/said" 2>&1; then
    local said
    said=$(xargs <"$trial/said")
    rm -rf "$trial"
    refuse "minisign cannot sign with $key ($said): is POSTHORN_RELEASE_KEY_PASSWORD right?"
  fi
  rm -rf "$trial"
}

# The commit, and a line for each file that differs from it.
state_of_sources() { git rev-parse HEAD 2>/dev/null && git status --porcelain; }

sign() {
  need_apt minisign minisign
  printf '%s\n' "${POSTHORN_RELEASE_KEY_PASSWORD:-}" |
    minisign -S -s "$POSTHORN_RELEASE_KEY" -m "$1" -t "posthorn $version"
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
  [ "$(state_of_sources)" = "$sources" ] || fail "files were changed during the build, so nothing is signed: build again"
  sign "$out/SHA256SUMS" >/dev/null || fail "minisign could not sign SHA256SUMS"
  echo "signed: $out/SHA256SUMS.minisig"
}
