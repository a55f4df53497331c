# Tests of packaging/build and of the Debian package; see packaging/test.

# refused CODE TEXT ARGUMENTS...: the build ends with this code and says this.
refused() {
  local code=0 wanted=$1 text=$2
  shift 2
  packaging/build "$@" >"$place/said" 2>&1 || code=$?
  [ "$code" = "$wanted" ] || fail "packaging/build $* ended with $code, not $wanted: $(cat "$place/said")"
  grep -qF -- "$text" "$place/said" || fail "packaging/build $* does not say \`$text\`: $(cat "$place/said")"
}

test_arguments() {
  refused 2 'say what to build'
  refused 2 '`rpm` is nothing that can be built' rpm
  refused 2 '--binary needs a value' deb --binary
  refused 2 '/nowhere is not a program' deb --binary /nowhere
  refused 1 'CHANGELOG.md has no section "## 99.0.0"' chart --version 99.0.0 --out "$place/empty"
  refused 1 'is not a version' chart --version 1.0/0 --out "$place/empty"
  POSTHORN_RELEASE_KEY=/nowhere refused 1 '/nowhere cannot be read; nothing was built' --out "$place/empty" chart
}

git_here() { git -c user.name=Test -c user.email=test@posthorn.example -c commit.gpgsign=false "$@"; }

# A repository in this folder as it is when a version is released: everything is committed, and the changelog has a date.
commit_release() {
  (
    cd "$1"
    rm -rf .git
    git init -q
    sed -i -E 's/^(## [0-9.]+) \(not released.*/\1 (2026-01-01)/' CHANGELOG.md
    git_here add -A
    git_here commit -q -m 'A release of the test'
  )
}

# A key with a password, as whoever releases has one.
create_release_key() {
  printf 'right\nright\n' | minisign -G -f -p "$place/key.pub" -s "$place/key.sec" >"$place/said" 2>&1 ||
    { cat "$place/said" && fail "no key"; }
}

# What is signed is a release, and nothing else. The chart is packed in a moment, so it stands for all packages.
test_seal() {
  local copy=$place/repository tools
  tools=$(realpath -m "$(target_folder)")
  mkdir "$copy"
  cp -r packaging Cargo.toml CHANGELOG.md .gitignore "$copy/"
  commit_release "$copy"
  create_release_key
  (
    cd "$copy"
    CARGO_TARGET_DIR=$tools
    POSTHORN_RELEASE_KEY=$place/key.sec POSTHORN_RELEASE_KEY_PASSWORD=right
    export CARGO_TARGET_DIR POSTHORN_RELEASE_KEY POSTHORN_RELEASE_KEY_PASSWORD
    # Nothing is built where a word of this is wrong.
    unsigned() { refused 1 "$@" && [ -z "$(find dist -type f ! -name foreign 2>/dev/null)" ] || fail "something was built"; }
    unsigned 'the program that this build makes' chart --binary "$binary"
    unsigned 'compressed well' chart --fast
    printf '\n## 99.0.0 (2026-01-02)\n' >>CHANGELOG.md
    unsigned 'has the version of Cargo.toml' chart --version 99.0.0
    unsigned 'not as they were committed: M CHANGELOG.md' chart
    git checkout -q CHANGELOG.md
    echo >packaging/new
    unsigned 'not as they were committed: ?? packaging/new' chart
    rm packaging/new
    mkdir -p dist && echo >dist/foreign
    unsigned 'has files already, which would be signed, too: foreign' chart
    rm dist/foreign
    POSTHORN_RELEASE_KEY_PASSWORD=wrong unsigned 'is POSTHORN_RELEASE_KEY_PASSWORD right?' chart
    packaging/build chart >"$place/said" 2>&1 || { cat "$place/said" && fail "a release is not signed"; }
    cd dist
    minisign -V -q -p "$place/key.pub" -m SHA256SUMS
    sha256sum --quiet -c SHA256SUMS
    cd ..
    sed -i -E 's/^(## [0-9.]+) \(2026-01-01\)/\1 (not released yet)/' CHANGELOG.md
    git_here commit -q -a -m 'Not a release'
    rm -rf dist
    unsigned 'is not released: write the date there' chart
  )
}

test_debian_versions() {
  (
    . packaging/parts/deb.sh
    older() { dpkg --compare-versions "$(version=$1 debian_version)" lt "$(version=$2 debian_version)" || fail "$1 is not older than $2"; }
    older 1.0.0-rc.1 1.0.0
    older 1.0.0-alpha-2 1.0.0-beta
    older 1.0.0 1.0.1-rc.1
  )
}

test_deb() {
  local deb next=$place/given/next.deb
  test_debian_versions
  mkdir -p "$place/given"
  packaging/build --fast --binary "$binary" --out "$place/deb" deb >"$place/said" 2>&1 || { cat "$place/said" && fail "no package"; }
  deb=$(echo "$place"/deb/posthorn_*.deb)
  (cd "$place/deb" && sha256sum --quiet -c SHA256SUMS)
  lintian --allow-root --fail-on error,warning "$deb"
  # A deviation that became worse is noticed: 0 is closed, 100 is open.
  systemd-analyze security --offline=true --threshold=20 packaging/deb/posthorn.service >"$place/said" ||
    { cat "$place/said" && fail "the unit is too open"; }
  tail -n 1 "$place/said"

  # The next version, with a configuration file that differs from the first one's.
  dpkg-deb --raw-extract "$deb" "$place/next"
  sed -i 's/^Version: .*/&+next/' "$place/next/DEBIAN/control"
  echo '# This line is new in the next version.' >>"$place/next/etc/posthorn/posthorn.yaml"
  dpkg-deb --build --root-owner-group -Znone "$place/next" "$next" >/dev/null
  cp "$deb" "$place/given/first.deb"
  cp packaging/tests/deb-life "$place/given/"
  chmod 0755 "$place" "$place/given"
  if has_namespaces overlay; then
    as_root packaging/tests/throw-away-root "$place/given" bash /given/deb-life
  else
    skipped "the life of the Debian package: this machine allows no namespaces ($(xargs <"$place/why"))"
  fi
}
