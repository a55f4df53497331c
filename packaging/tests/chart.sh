# Tests of the Helm chart; see packaging/test. chart.py has what is expected.

test_chart() {
  . packaging/parts/chart.sh
  chart_tools
  local values name
  for values in packaging/tests/values/*.yaml; do
    name=$(basename "$values" .yaml)
    helm lint --quiet --strict packaging/chart/posthorn -f "$values"
    helm template demo packaging/chart/posthorn -f "$values" >"$place/$name.yaml"
    # The oldest version that the chart allows, and the newest that is known here.
    for kubernetes in 1.30 1.37; do
      kubernetes-validate --quiet --no-warn -k "$kubernetes" --strict "$place/$name.yaml" ||
        fail "$values gives what Kubernetes $kubernetes does not understand"
    done
  done
  python3 packaging/tests/chart.py "$(realpath "$binary")" "$place"
}
