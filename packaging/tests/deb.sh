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
  POSTHORN_RELEASE_KEY=/nowhere refused 1 '/nowhere cannot be read; nothing was built' --out "$place/empty" chart
}

test_deb() {
  local deb next=$place/given/next.deb
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
  if as_root unshare --mount true 2>"$place/said"; then
    as_root packaging/tests/throw-away-root "$place/given" bash /given/deb-life
  else
    skipped "the life of the Debian package: this machine allows no namespaces ($(cat "$place/said"))"
  fi
}
