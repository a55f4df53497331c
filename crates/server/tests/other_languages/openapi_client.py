"""A client that openapi-python-client makes from our document, and a subscription made with it."""

import compileall
import importlib
import subprocess
import sys
from pathlib import Path

PACKAGE = "posthorn_client"


def generate(document, folder):
    """Makes the client; a warning, such as a part that had to be left out, is a failure."""
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--fail-on-warning", "--config", str(config), "--path", document]
    command += ["--output-path", str(folder / PACKAGE)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert compileall.compile_dir(folder / PACKAGE, quiet=1), "does not compile"


def make(q):
    folder = Path(q["folder"])
    generate(q["document"], folder)
    sys.path.insert(0, str(folder))
    for module in sorted((folder / PACKAGE).rglob("*.py")):
        name = ".".join(module.relative_to(folder).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))
    client = importlib.import_module(PACKAGE)
    m = importlib.import_module(f"{PACKAGE}.models")
    calls = importlib.import_module(f"{PACKAGE}.api.subscriptions.create_subscription")
    profiles = importlib.import_module(f"{PACKAGE}.api.profiles.get_profile")

    def test(path, op, value):
        return m.ConditionTest(
            test=m.ConditionTestTest(path=path, op=m.ConditionTestTestOp(op), value=value)
        )

    headers = m.RequestPolicyPatchHeadersType0()
    headers["X-Type"] = "{event.type}"
    policy = m.PolicyPatch(
        schedule=m.SchedulePatch(
            backoff=m.BackoffExponential(
                exponential=m.BackoffExponentialExponential(initial="2s", factor=3, cap="1m")
            ),
            jitter=m.JitterRatio(ratio=m.JitterRatioRatio(ratio=0.2)),
            max_attempts=4,
            retry_after=m.RetryAfterPatch(honour=False),
        ),
        gate=m.GatePatch(
            url="https://gate.example.com/open",
            timeout="1s",
            status=["2xx"],
            expect=m.GateExpectPatch(pointer="/Status", equals=2),
            on_closed=m.OnClosedPostpone(postpone=m.OnClosedPostponePostpone(wait="1m")),
        ),
        auth=[m.AuthHmacHeader(
            kind="hmac_header", secret="shared", header="X-Signature",
            hash_=m.AuthHmacHeaderHash("sha256"), encoding=m.AuthHmacHeaderEncoding("hex"),
            content=m.AuthHmacHeaderContent("body"), format_="sha256={signature}",
        )],
        request=m.RequestPolicyPatch(headers=headers),
        order=m.OrderPatch(scope=m.OrderPatchScope("key"), key="{event.payload.customer}"),
        success=["200-204"],
    )
    condition = m.ConditionAll(all_=[
        test("/total", "gt", 10),
        m.ConditionNot(not_=m.ConditionAny(any_=[test("/test", "exists", None)])),
    ])
    secrets = m.NewWebhookSubscriptionSecrets()
    secrets["shared"] = "0123456789abcdef"
    body = m.NewWebhookSubscription(
        url=q["url"],
        name="made by python",
        filter_=m.Filter(any_of=[m.FilterGroup(topics=["orders"], payload=condition)]),
        policy=policy,
        secrets=secrets,
    )
    api = client.AuthenticatedClient(base_url=q["server"], token=q["key"])
    made = calls.sync(client=api, body=body)
    assert isinstance(made, m.CreatedSubscription), made
    assert made.policy.schedule.backoff.exponential.factor == 3, made
    assert made.policy.to_dict() == policy.to_dict(), made
    # Every knob of a whole policy is understood as well.
    profile = profiles.sync("pca-hub", client=api)
    assert isinstance(profile, m.Profile), profile
    assert profile.policy.gate.expect.pointer == "/Status", profile
    return {"id": made.id}
