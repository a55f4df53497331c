//! Certificates of a tenant: registered, used, replaced, taken back.

use std::time::Duration;

use posthorn_domain::Scope;
use posthorn_testkit::authority::Pair;

use crate::harness::Site;

const LIST: &str = "/console/t/acme/certificates";

#[tokio::test]
async fn a_certificate_is_registered_replaced_revoked_and_deleted() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    let html = acme.get(LIST).await.expect(200);
    assert!(html.contains("This tenant has no certificates."), "{html}");
    let (first, second) = (Pair::self_signed("ok.example"), Pair::self_signed("ok.example"));
    let new = |pair: &Pair| {
        vec![
            ("kind".to_owned(), "client".to_owned()),
            ("description".to_owned(), "for the bank".to_owned()),
            ("host".to_owned(), "ok.example".to_owned()),
            ("certificate".to_owned(), pair.certificate.clone()),
            ("key".to_owned(), pair.key.clone()),
        ]
    };
    let form = new(&first);
    let form: Vec<(&str, &str)> =
        form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let place = acme.submit(&format!("{LIST}/new"), &form).await.leads();
    let (path, _) = place.split_once("?done=created").unwrap();
    let html = acme.get(path).await.expect(200);
    assert!(html.contains("for the bank") && html.contains(&first.thumbprint()), "{html}");
    assert!(html.contains("kept here, sealed") && !html.contains("PRIVATE KEY"), "{html}");
    assert!(html.contains("No subscription names it"), "{html}");

    let rotate = format!("{path}/rotate");
    let html =
        acme.submit(&rotate, &[("certificate", "no"), ("key", &second.key)]).await.expect(400);
    assert!(html.contains("id=\"w-certificate\"") || html.contains("role=\"alert\""), "{html}");
    assert!(!html.contains("PRIVATE KEY"), "a key is not sent back");
    let contents = [("certificate", second.certificate.as_str()), ("key", second.key.as_str())];
    assert_eq!(acme.submit(&rotate, &contents).await.leads(), format!("{path}?done=rotated"));
    let html = acme.get(path).await.expect(200);
    assert!(html.contains(&second.thumbprint()) && !html.contains(&first.thumbprint()), "{html}");

    acme.submit(&format!("{path}/revoke"), &[("sure", "1")]).await.leads();
    let html = acme.get(path).await.expect(200);
    assert!(html.contains("<span class=\"state off\">revoked</span>"), "{html}");
    assert!(
        !html.contains("/rotate\"") && !html.contains("/revoke\""),
        "there is nothing to replace"
    );
    assert_eq!(
        acme.submit(&format!("{path}/delete"), &[("sure", "1")]).await.leads(),
        format!("{LIST}?done=deleted")
    );
    acme.get(path).await.expect(404);
}

#[tokio::test]
async fn what_ends_first_stands_first_with_who_uses_it() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let days = |days: u64| Duration::from_secs(days * 86_400);
    for (name, time) in [("late", days(300)), ("soon", days(5)), ("middle", days(90))] {
        let pair = Pair::valid_for("NL", time);
        let host = format!("{name}.example");
        let form = [
            ("kind", "client"),
            ("description", name),
            ("host", &host),
            ("certificate", &pair.certificate),
            ("key", &pair.key),
        ];
        operator.submit(&format!("{LIST}/new"), &form).await.leads();
    }
    let html = operator.get(LIST).await.expect(200);
    let order: Vec<&str> =
        html.split("data-open>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(order, ["soon", "middle", "late"]);
    assert!(html.contains("expires soon"), "{html}");

    let body = serde_json::json!({
        "url": "https://soon.example/hook", "name": "the bank",
        "policy": {"auth": [{"kind": "client_certificate"}]},
    });
    let key =
        site.engine.create_key(Some(site.acme), vec![Scope::Manage], String::new(), None, None);
    let api = posthorn_api::router(site.engine.clone(), posthorn_api::Options::default());
    let request = http::Request::post("/v1/subscriptions")
        .header("authorization", format!("Bearer {}", key.await.unwrap().text))
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    let answer = tower::ServiceExt::oneshot(api, request).await.unwrap();
    assert_eq!(answer.status(), 201);
    let html = operator.get(LIST).await.expect(200);
    let used: Vec<&str> = html
        .split("<td class=\"number\">")
        .skip(1)
        .map(|rest| rest.split('<').next().unwrap())
        .collect();
    assert_eq!(used, ["1", "0", "0"]);
    let path = html.split("<td><a href=\"").nth(1).unwrap().split('"').next().unwrap();
    let html = operator.get(path).await.expect(200);
    assert!(html.contains(">the bank</a>"), "{html}");
}

#[tokio::test]
async fn callers_are_registered_by_operators_only() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    let pair = Pair::self_signed("caller.example");
    let form = [("kind", "caller"), ("scopes", "read"), ("certificate", pair.certificate.as_str())];
    let html = acme.get(&format!("{LIST}/new")).await.expect(200);
    assert!(!html.contains("value=\"caller\""), "{html}");
    let html = acme.submit(&format!("{LIST}/new"), &form).await.expect(400);
    assert!(html.contains("only an operator may register a caller"), "{html}");
    let operator = site.operator().await;
    let place = operator.submit(&format!("{LIST}/new"), &form).await.leads();
    let (path, _) = place.split_once('?').unwrap();
    let html = acme.get(path).await.expect(200);
    assert!(
        !html.contains("/rotate\"") && html.contains("/revoke\""),
        "its tenant may take it back: {html}"
    );
    acme.submit(&format!("{path}/delete"), &[("sure", "1")]).await.expect(403);
}
