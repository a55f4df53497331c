# What the program is made of, as CycloneDX: every crate with its version, licence and checksum.

build_sbom() {
  if ! command -v cargo-cyclonedx >/dev/null; then
    say "installing cargo-cyclonedx"
    cargo install --locked cargo-cyclonedx@0.5.9
  fi
  # It writes beside the manifest of each crate of the workspace; only the program's is wanted.
  cargo cyclonedx --quiet --manifest-path crates/server/Cargo.toml --format json --spec-version 1.5 \
    --target "$(uname -m)-unknown-linux-gnu" --override-filename posthorn-sbom
  mv crates/server/posthorn-sbom.json "$out/posthorn-$version.cdx.json"
  find crates proof -maxdepth 2 -name posthorn-sbom.json -delete
  need_apt python3 python3
  python3 - "$out/posthorn-$version.cdx.json" <<'PYTHON'
import json, sys
bom = json.load(open(sys.argv[1]))
names = {component["name"] for component in bom["components"]}
missing = {"tokio", "rustls", "rusqlite", "hyper"} - names
assert bom["bomFormat"] == "CycloneDX" and not missing, f"the list is not complete: {missing}"
print(f"{len(names)} components in {sys.argv[1]}")
PYTHON
}
