"""What the chart makes of several values, compared with what it should be; see chart.sh.

chart.py PROGRAM FOLDER: the program checks the configurations; the folder has NAME.yaml for each values/NAME.yaml.
"""

import os
import pathlib
import subprocess
import sys

import yaml

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
CHART = "packaging/chart/posthorn"
INGRESS = "ingress.enabled=true,ingress.host=hooks.example.com,push.enabled=true"
# Values that must be refused, and a part of what is said then.
REFUSED = {
    "store.kind=mysql": "kind",
    "store.kind=postgres": "store.postgres.existingSecret",
    "store.kind=postgres,store.postgres.existingSecret=db": "share the seal key",
    "push.enabled=true": "push.endpointUrl",
    "push.split=true": "needs store.kind=postgres",
    "secrets.existingSecret=a,secrets.sealKey=b": "not both",
    "ingress.enabled=true": "ingress.host",
    f"{INGRESS},push.endpointUrl=https://other.example.com": "other.example.com is neither ingress.host nor ingress.pushHost",
    f"{INGRESS},push.endpointUrl=https://hooks.example.com/base": "without the path /base",
    f"{INGRESS},push.endpointUrl=https://hooks.example.com,ingress.pushHost=hooks.example.com": "another host",
    "replicas=0": "replicas",
    "replica=3": "replica",
    "hold=maybe": "hold",
    "store.sqlite.size=large": "size",
}


# What the chart may make. A mistyped version of a custom kind would be noticed by nobody else.
KINDS = {
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("networking.k8s.io/v1", "Ingress"),
    ("policy/v1", "PodDisruptionBudget"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
}


def run(*command, env=None):
    return subprocess.run(command, capture_output=True, text=True, env=env)


def secret(*command):
    made = run(PROGRAM, *command)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip().splitlines()[-1]


def pods(documents):
    for document in documents:
        if document["kind"] in ("StatefulSet", "Deployment"):
            yield document["spec"]["template"]
        elif document["kind"] == "Pod":
            yield document


def check_pod(pod):
    """As the profile `restricted` of Kubernetes wants it, with a root that cannot be written."""
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False, context
        assert context["readOnlyRootFilesystem"] is True, context
        assert context["capabilities"] == {"drop": ["ALL"]}, context
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] == "admin" and "admin" in ports
        claimed = {volume["name"] for volume in spec.get("volumes", [])} | {"data"}
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= claimed


def selects(selector, labels):
    return selector.items() <= labels.items()


def check_whole(name, documents):
    of = lambda kind: [document for document in documents if document["kind"] == kind]
    for document in documents:
        pair = (document["apiVersion"], document["kind"])
        assert pair in KINDS, f"{name}: {pair} is nothing that Kubernetes knows"
    workloads = of("StatefulSet") + of("Deployment")
    templates = [workload["spec"]["template"] for workload in workloads]
    for pod in pods(documents):
        check_pod(pod)
    for workload in workloads:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert selects(workload["spec"]["selector"]["matchLabels"], labels)
    services = {service["metadata"]["name"]: service for service in of("Service")}
    for service in services.values():
        chosen = [t for t in templates if selects(service["spec"]["selector"], t["metadata"]["labels"])]
        assert chosen, f"{service['metadata']['name']} leads to no pod"
        for pod in of("Pod"):
            wrong = selects(service["spec"]["selector"], pod["metadata"].get("labels", {}))
            assert not wrong, f"{service['metadata']['name']} also leads to {pod['metadata']['name']}"
    for budget in of("PodDisruptionBudget"):
        chosen = [t for t in templates if selects(budget["spec"]["selector"]["matchLabels"], t["metadata"]["labels"])]
        assert len(chosen) == 1, budget
    for monitor in of("ServiceMonitor"):
        chosen = [s for s in services.values() if selects(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
        assert len(chosen) == 1, monitor
        ports = {port["name"] for port in chosen[0]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
        assert chosen[0]["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "posthorn"
    for ingress in of("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                assert path["backend"]["service"]["name"] in services
    for document in documents:
        # Keys are in secrets, and nowhere else.
        if document["kind"] != "Secret":
            assert "KEY_OF_THE_TEST" not in yaml.safe_dump(document), document["kind"]
    check_configuration(name, of("ConfigMap"), templates)


def check_configuration(name, maps, templates):
    """The program itself reads what each pod would read."""
    known = {
        "DATABASE_URL": "postgres://user:password@database.example/posthorn",
        "SEAL_KEY": secret("seal", "create"),
        "OPERATOR_KEY": secret("keys", "generate", "operator"),
        "POD_IP": "10.0.0.7",
    }
    file = FOLDER / f"{name}.posthorn.yaml"
    file.write_text(maps[0]["data"]["posthorn.yaml"])
    for template in templates:
        env = {"PATH": os.environ["PATH"]}
        for variable in template["spec"]["containers"][0]["env"]:
            value = variable.get("value", known.get(variable["name"], "x"))
            env[variable["name"]] = value.replace("$(POD_IP)", known["POD_IP"])
        checked = run(PROGRAM, "check", "--json", "--config", str(file), env=env)
        assert checked.returncode == 0, f"{name}: {checked.stderr}"


def reached(name, host, path):
    """The service that an ingress leads a path of a host to, and the roles of Web Push that its pods have."""
    documents = rendered(name)
    (ingress,) = [document for document in documents if document["kind"] == "Ingress"]
    (rule,) = [rule for rule in ingress["spec"]["rules"] if rule["host"] == host]
    # As Kubernetes says: an exact path first, then the longest prefix of whole elements.
    fits = {
        "Exact": lambda own: path == own,
        "Prefix": lambda own: f"{path}/".startswith(own.rstrip("/") + "/"),
    }
    found = [own for own in rule["http"]["paths"] if fits[own["pathType"]](own["path"])]
    if not found:
        return None
    best = max(found, key=lambda own: (own["pathType"] == "Exact", len(own["path"])))
    name = best["backend"]["service"]["name"]
    (service,) = [d for d in documents if d["kind"] == "Service" and d["metadata"]["name"] == name]
    (pod,) = [pod for pod in pods(documents) if selects(service["spec"]["selector"], pod["metadata"].get("labels", {}))]
    variables = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}
    # With one pod it has both.
    return name, variables.get("POSTHORN__PUSH__ROLES", "connection,endpoint")


def check_ways_in():
    split = [
        ("push.example.com", "/", ("demo-posthorn-push", "connection")),
        ("push.example.com", "/wpush/v2/token", ("demo-posthorn", "endpoint")),
        ("push.example.com", "/m/message", ("demo-posthorn", "endpoint")),
        # Nothing else of the server is public where strangers connect.
        ("push.example.com", "/v1/events", None),
        ("push.example.com", "/metrics", None),
        ("hooks.example.com", "/v1/events", ("demo-posthorn", "endpoint")),
        ("hooks.example.com", "/wpush/v2/token", ("demo-posthorn", "endpoint")),
    ]
    whole = ("demo-posthorn", "connection,endpoint")
    one = [("push.example.com", "/", whole), ("push.example.com", "/wpush/v2/token", whole), ("push.example.com", "/v1", None)]
    for name, ways in {"push-split": split, "sqlite-ingress": one}.items():
        for host, path, wanted in ways:
            found = reached(name, host, path)
            assert found == wanted, f"{name}: {host}{path} leads to {found}, not {wanted}"


def rendered(name):
    return [document for document in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()) if document]


def kinds(name):
    found = {}
    for document in rendered(name):
        found[document["kind"]] = found.get(document["kind"], 0) + 1
    return found


def main():
    names = [path.stem for path in sorted(pathlib.Path("packaging/tests/values").glob("*.yaml"))]
    for name in names:
        check_whole(name, rendered(name))
    every = {"ConfigMap": 1, "Service": 2, "Pod": 1}
    expected = {
        "defaults": every | {"StatefulSet": 1},
        "sqlite-push": every | {"StatefulSet": 1, "Secret": 1},
        "sqlite-ingress": every | {"StatefulSet": 1, "Ingress": 1},
        # One pod cannot be kept while it is moved.
        "postgres": every | {"Deployment": 1, "Secret": 1},
        "push-split": every | {"Service": 3, "Deployment": 2, "PodDisruptionBudget": 2, "Ingress": 1, "ServiceMonitor": 1},
    }
    assert {name: kinds(name) for name in names} == expected, {name: kinds(name) for name in names}
    (held,) = [pod for pod in pods(rendered("postgres")) if "serve" in pod["spec"]["containers"][0]["args"]]
    (container,) = held["spec"]["containers"]
    assert container["args"][-1] == "--hold", container["args"]
    assert "/etc/posthorn-database" in {mount["mountPath"] for mount in container["volumeMounts"]}
    (free,) = [pod for pod in pods(rendered("defaults")) if "serve" in pod["spec"]["containers"][0]["args"]]
    assert "--hold" not in free["spec"]["containers"][0]["args"]
    roles = {}
    for document in rendered("push-split"):
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            values = {variable["name"]: variable.get("value") for variable in container["env"]}
            roles[document["metadata"]["name"]] = (values["POSTHORN__PUSH__ROLES"], document["spec"]["replicas"])
    assert roles == {"demo-posthorn": ("endpoint", 3), "demo-posthorn-push": ("connection", 4)}, roles
    check_ways_in()
    for values, said in REFUSED.items():
        refused = run("helm", "template", "demo", CHART, "--set", values)
        assert refused.returncode != 0, f"{values} was accepted"
        assert said in refused.stderr, f"{values}: `{said}` is not in {refused.stderr}"
    print(f"{len(names)} sets of values are as they should be, {len(REFUSED)} are refused")


main()
