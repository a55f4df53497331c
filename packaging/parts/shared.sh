# What the parts of packaging/build share: the version, the program, and what is shipped beside it.
# Needs: root, out, binary, version. Provides: stage, epoch.

say() { printf '\n== %s\n' "$*"; }
fail() {
  echo "packaging/build: $*" >&2
  exit 1
}
skipped() { echo "SKIPPED $*"; }

stage=$root/dist/stage
# Files in packages carry the time of the last commit, so that the same program gives the same packages.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH=$epoch

# Installs packages of Debian where this program is missing.
need_apt() {
  local tool=$1
  shift
  command -v "$tool" >/dev/null || install_apt "$@"
}

# The installer of Python's packages, which is a package of its own.
need_pip() { python3 -m pip --version >/dev/null 2>&1 || install_apt python3 python3-pip; }

# Asks before it uses sudo on a terminal.
install_apt() {
  say "installing $*"
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    sudo=(sudo)
    if [ -t 0 ]; then
      read -r -p "This needs root: apt-get install $*. Run it? [y/N] " answer
      [[ $answer = [yY]* ]] || fail "install $* yourself, then run this again"
    fi
  fi
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# Whether the changelog gives a version no date yet.
is_unreleased() { grep -qE "^## ${1//./\\.} .*not released" CHANGELOG.md; }

# A version is packed only when the changelog tells what is in it.
check_version() {
  version=${version:-$(workspace_version)}
  [ -n "$version" ] || fail "Cargo.toml has no version in [workspace.package]"
  [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "\`$version\` is not a version like 1.2.3 or 1.2.3-rc.1"
  if ! grep -qE "^## ${version//./\\.}( |$)" CHANGELOG.md; then
    fail "CHANGELOG.md has no section \"## $version\": write what is in this version, then build"
  fi
  if is_unreleased "$version"; then
    echo "CHANGELOG.md says that $version is not released yet: write the date there when it is" >&2
  fi
}

# Builds the program, or takes the one that was given. Arguments go to cargo.
build_program() {
  mkdir -p "$stage"
  if [ -n "$binary" ]; then
    # Without symbols, as a release has none; a build for tests is several times larger with them.
    strip -o "$stage/posthorn" "$binary"
    return
  fi
  local commit
  commit=$(git rev-parse HEAD 2>/dev/null || true)
  [ -z "$commit" ] || export POSTHORN_COMMIT=$commit
  # Paths of the machine that builds do not belong into the program.
  RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$root=/posthorn --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
    cargo "${CARGO_BUILD:-build}" --profile dist --locked -p posthorn-server --bin posthorn "$@"
}

# $1: the program as cargo built it, $2: what its file of symbols is called, $3: its processor.
split_symbols() {
  local prefix=''
  if [ "$3" != "$(uname -m)" ]; then
    prefix=$3-linux-gnu-
    need_apt "${prefix}objcopy" "binutils-$(tr _ - <<<"$3")-linux-gnu"
  fi
  "${prefix}objcopy" --only-keep-debug --compress-debug-sections "$1" "$out/$2.debug"
  chmod 0644 "$out/$2.debug"
  "${prefix}strip" -o "$stage/posthorn" "$1"
  (cd "$out" && "${prefix}objcopy" --add-gnu-debuglink="$2.debug" "$stage/posthorn")
}

target_folder() { echo "${CARGO_TARGET_DIR:-$root/target}"; }

# The program for this machine, as it is linked usually.
build_native() {
  build_program
  [ -n "$binary" ] || split_symbols "$(target_folder)/dist/posthorn" "posthorn-$version-$(uname -m)-linux-gnu" "$(uname -m)"
}

# Man pages, completions and documents. $1: a program that runs here.
stage_documents() {
  rm -rf "$stage/man" "$stage/completions" "$stage/doc"
  mkdir -p "$stage/man" "$stage/completions" "$stage/doc"
  "$1" man --to "$stage/man" >/dev/null
  "$1" completions bash >"$stage/completions/posthorn.bash"
  "$1" completions zsh >"$stage/completions/_posthorn"
  "$1" completions fish >"$stage/completions/posthorn.fish"
  gzip -9n "$stage"/man/*.1
  gzip -9nc CHANGELOG.md >"$stage/doc/changelog.gz"
  need_apt python3 python3
  python3 packaging/parts/third_party.py >"$stage/doc/third-party.txt"
  gzip -9nk "$stage/doc/third-party.txt"
}

# Nothing loads a static program; a dynamic one names its loader.
require_static() {
  if readelf --program-headers --wide "$1" | grep -q INTERP; then
    fail "$1 is not static: it needs a C library where it runs"
  fi
}
