"""Writes the names, versions, licences and notices of all crates that the program contains.

Reads `cargo metadata` and the sources that cargo keeps; asks no network.
"""

import json
import pathlib
import subprocess
import sys

NOTICES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "x86_64-unknown-linux-gnu"
    ask = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.check_output(ask))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    first = next(p["id"] for p in metadata["packages"] if p["name"] == "posthorn-server")
    seen, waiting = set(), [first]
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        for dependency in nodes[package]["deps"]:
            # What only builds or tests use is not in the program.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    others = sorted(
        (packages[id] for id in seen if packages[id]["source"]),
        key=lambda package: (package["name"], package["version"]),
    )
    texts = {}
    print("Posthorn contains these libraries, under these licences. Their notices follow.\n")
    for package in others:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see its notice'}")
        for text in notices(package):
            texts.setdefault(text, []).append(name)
    for text, names in texts.items():
        print(f"\n{'-' * 79}\n{', '.join(names)}\n\n{text}")


def notices(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.lower().startswith(NOTICES):
            yield path.read_text(encoding="utf-8", errors="replace").strip()


main()
