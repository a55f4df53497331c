# Tests of all packages as they are released, from a copy of this folder in which everything is committed: signatures,
# the static program, the image, the files for compose, `cargo install`. See packaging/test.

test_released() {
  say "packages: all of them, signed"
  need_apt umoci umoci
  need_apt docker-compose docker-compose
  # Always in the same folder, so that what was built there once is not built again.
  local copy
  copy=$(target_folder)/release-of-the-test
  copy_sources "$copy"
  commit_release "$copy"
  CARGO_TARGET_DIR=$(realpath -m "$(target_folder)") POSTHORN_RELEASE_KEY=$place/key.sec POSTHORN_RELEASE_KEY_PASSWORD=right \
    "$copy/packaging/build" --out "$place/dist" all
  (
    cd "$place/dist"
    minisign -V -q -p "$place/key.pub" -m SHA256SUMS
    sha256sum --quiet -c SHA256SUMS
    lintian --allow-root --fail-on error,warning posthorn_*.deb
  )
  say "packages: a changed list is refused"
  cp "$place/dist/SHA256SUMS.minisig" "$place/changed.minisig"
  sed 's/^./0/' "$place/dist/SHA256SUMS" >"$place/changed"
  if minisign -V -q -p "$place/key.pub" -m "$place/changed" 2>/dev/null; then fail "the signature fits another list"; fi
  say "packages: tarball"
  test_tarball
  say "packages: tarball for another processor"
  test_other_tarball
  say "packages: image"
  test_image
  say "packages: compose"
  test_compose
  say "packages: cargo install"
  cargo install --locked --quiet --path crates/server --root "$place/installed" --no-track
  "$place/installed/bin/posthorn" version
}

# What is here, committed or not, without what is built. Files keep their stamps.
copy_sources() {
  rm -rf "$1"
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done | tar --null --files-from=- --create | tar --extract --directory "$1"
}

test_tarball() {
  local folder
  tar xzf "$place"/dist/posthorn-*-"$(uname -m)"-linux.tar.gz -C "$place"
  folder=$(echo "$place"/posthorn-*-linux)
  require_static "$folder/bin/posthorn"
  "$folder/bin/posthorn" version --json | grep -q '"static": true' || fail "the program does not know that it is static"
  if ! has_namespaces; then
    skipped "the program in an empty root: this machine allows no namespaces ($(xargs <"$place/why"))"
    return
  fi
  # A root with nothing but the program, and the one file that says which name has which address.
  mkdir -p "$place/bare"/{tmp,etc,proc,dev}
  cp "$folder/bin/posthorn" "$place/bare/"
  echo "127.0.0.1 posthorn.test" >"$place/bare/etc/hosts"
  in_bare /posthorn demo >"$place/said" 2>&1 || { cat "$place/said" && fail "the demo in an empty root"; }
  # Nobody listens on port 1, so it is refused; a name that is not found is another error.
  in_bare /posthorn health --server http://posthorn.test:1 >"$place/said" 2>&1 || true
  grep -qi refused "$place/said" || { cat "$place/said" && fail "names are not found in an empty root"; }
}

# The program for arm64 runs in an emulator.
test_other_tarball() {
  local archive program
  archive=$(echo "$place"/dist/posthorn-*-aarch64-linux.tar.gz)
  if [ "$(uname -m)" != x86_64 ] || [ ! -f "$archive" ]; then
    skipped "the program for another processor: it was not built here"
    return
  fi
  need_apt qemu-aarch64-static qemu-user-static
  tar xzf "$archive" -C "$place"
  program=$(echo "$place"/posthorn-*-aarch64-linux/bin/posthorn)
  require_static "$program"
  emulated() { qemu-aarch64-static "$program" "$@"; }
  emulated version --json >"$place/said"
  grep -q '"static": true' "$place/said" || fail "the program for arm64 does not know that it is static"
  # The demo starts other processes, which the emulator cannot.
  local folder=$place/arm64 job
  mkdir "$folder"
  qemu-aarch64-static "$program" serve --listen 127.0.0.1:0 --allow 127.0.0.0/8 --data "$folder/data" \
    --address-file "$folder/address" >"$place/said" 2>&1 &
  job=$!
  comes_true 30 test -s "$folder/address" || { cat "$place/said" && fail "a server on arm64 did not start"; }
  (
    export POSTHORN_SERVER POSTHORN_KEY
    POSTHORN_SERVER=$(cat "$folder/address") POSTHORN_KEY=$(cat "$folder/data/operator.key")
    timeout 60 qemu-aarch64-static "$program" listen --subscribe orders >"$place/heard" 2>&1 &
    comes_true 30 grep -q 'subscribed to orders' "$place/heard" || { cat "$place/heard" && fail "no receiver on arm64"; }
    emulated send orders order.created '{"id": 7}' >/dev/null
    comes_true 30 grep -q 'signature verified' "$place/heard" || { cat "$place/heard" && fail "no delivery on arm64"; }
    kill %+
  ) || { kill "$job" && exit 1; }
  kill "$job"
  wait "$job" || fail "a server on arm64 did not stop in good order"
}

# comes_true SECONDS COMMAND...: tries until it succeeds.
comes_true() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || return 1
    sleep 0.2
  done
}

# In that root, with what the kernel offers, and processes and a network of its own.
in_bare() {
  as_root unshare --mount --pid --net --fork --kill-child \
    sh -c 'ip link set lo up && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$place/bare" "$@"
}

test_image() {
  local layout=$place/layout bundle=$place/bundle
  mkdir -p "$layout"
  tar xf "$place"/dist/posthorn-*.oci.tar -C "$layout"
  as_root umoci unpack --image "$layout:$version" "$bundle" >/dev/null
  python3 - "$bundle/config.json" >"$place/start" <<'PYTHON'
import json, sys
process = json.load(open(sys.argv[1]))["process"]
assert (process["user"]["uid"], process["user"]["gid"]) == (10001, 10001), process["user"]
print(*process["args"])
PYTHON
  if ! has_namespaces; then
    skipped "the life of the container: this machine allows no namespaces ($(xargs <"$place/why"))"
    return
  fi
  local command
  read -r -a command <"$place/start"
  as_root packaging/tests/image-life "$bundle/rootfs" 10001:10001 "${command[@]}"
}

test_compose() {
  docker-compose -f packaging/compose/one-node.yaml config -q
  POSTGRES_PASSWORD=a SEAL_KEY=b OPERATOR_KEY=c docker-compose -f packaging/compose/two-nodes.yaml config -q
  if docker-compose -f packaging/compose/two-nodes.yaml config -q 2>"$place/said"; then fail "a missing password was not noticed"; fi
  grep -q 'write it into .env' "$place/said" || fail "compose does not say what is missing: $(cat "$place/said")"
}
