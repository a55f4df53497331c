//! Messages of the Notificaties API that operators send again, with the real program.

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::Server;
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::notificaties_world::{
    Callback, abonnement, home, kanaal, message, native, path_of, publish, stats,
};

const RESEND: &str = "/v1/notificaties/resend";

fn about(zaak: u32, kenmerken: &Value) -> Value {
    let mut message = message("zaken", kenmerken);
    message["hoofdObject"] = json!(format!("http://openzaak:8000/zaken/{zaak}"));
    message
}

fn count(server: &Server, body: &Value) -> Value {
    native(server, "POST", &format!("{RESEND}/count"), body).expect(200)["count"].clone()
}

/// Waits for the end of a job.
#[track_caller]
fn done(server: &Server, begun: Reply) -> Value {
    let reply = begun.with(201);
    let place = reply.header("location").expect("where the job is").to_owned();
    eventually("the end of a job", || {
        let job = native(server, "GET", &place, &Value::Null).expect(200);
        (job["state"] != "running").then_some(job)
    })
}

#[test]
fn messages_are_sent_again_by_date_result_kenmerk_and_abonnement() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["object_type"]);
    kanaal(&server, "besluiten", &[]);
    let (bad, good) = (Callback::new(), Callback::new());
    let kanalen = json!([{"naam": "zaken"}, {"naam": "besluiten"}]);
    let failing = abonnement(&server, &bad, &kanalen);
    abonnement(&server, &good, &kanalen);
    bad.answer(500);
    publish(&server, &about(1, &json!({"objectType": "melding"}))).expect(201);
    publish(&server, &about(2, &json!({"objectType": "zaak"}))).expect(201);
    publish(&server, &message("besluiten", &json!({}))).expect(201);
    until("an end of all deliveries", || stats(&server)["pending"] == 0);
    assert_eq!((&stats(&server)["dead"], &stats(&server)["delivered"]), (&json!(3), &json!(3)));

    // A count changes nothing.
    let uuid = path_of(&failing).rsplit('/').next().unwrap().to_owned();
    for (body, wanted) in [
        (json!({}), 3),
        (json!({"resultaat": "gelukt"}), 3),
        (json!({"kanaal": "zaken"}), 2),
        (json!({"kanaal": "zaken", "kenmerken": {"object_type": "melding"}}), 1),
        (json!({"kenmerken": {"objectType": "*"}}), 2),
        (json!({"hoofdObject": "http://openzaak:8000/zaken/2"}), 1),
        (json!({"hoofdObject": "http://openzaak:8000/zaken/9"}), 0),
        (json!({"resourceUrl": "http://openzaak:8000/statussen/2", "actie": "create"}), 3),
        (json!({"actie": "destroy"}), 0),
        (json!({"tot": "2999-01-01T00:00:00Z", "perSeconde": 10}), 3),
        (json!({"abonnement": uuid, "resultaat": "gelukt"}), 0),
        (json!({"abonnement": failing["url"], "resultaat": "alle", "kanaal": "besluiten"}), 1),
    ] {
        assert_eq!(count(&server, &body), wanted, "{body}");
    }
    assert_eq!((bad.seen().len(), good.seen().len()), (12, 3));

    bad.answer(0);
    let body = json!({"abonnement": uuid, "kenmerken": {"objectType": "melding"}});
    let job = done(&server, native(&server, "POST", RESEND, &body));
    assert_eq!((&job["done"], &job["kind"]), (&json!(1), &json!("replay")), "{job}");
    let again = bad.wait(13).last().unwrap().json();
    assert_eq!(again["hoofdObject"], "http://openzaak:8000/zaken/1");
    assert_eq!(good.seen().len(), 3, "only the abonnement that was named");

    // By command, for all of them.
    let resend = "notificaties resend --tenant gemeente --kanaal zaken";
    let counted = server.ask(&format!("{resend} --dry-run --van 1h --kenmerk objectType=zaak"));
    assert_eq!((&counted["count"], &counted["complete"]), (&json!(1), &json!(true)));
    let job = server.ask(&format!("{resend} --resultaat gelukt --per-second 1000"));
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(3)), "{job}");
    good.wait(5);
    bad.wait(14);
    server.stop();
}

#[test]
fn what_cannot_be_sent_again_is_refused_with_the_field() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    for (body, field) in [
        (json!({"kanaal": "anders"}), "kanaal"),
        (json!({"van": "2026-01-02T00:00:00Z", "tot": "2026-01-01T00:00:00Z"}), "tot"),
        (json!({"van": "gisteren"}), "van"),
        (json!({"van": "2999-01-01T00:00:00Z"}), "van"),
        (json!({"resultaat": "failed"}), "resultaat"),
        (json!({"resultaat": "gemist"}), "resultaat"),
        (json!({"abonnement": "b3ff6ad5-7a2c-4a4c-9a5a-6a1b6b6cbb6c"}), "abonnement"),
        (json!({"abonnement": "x"}), "abonnement"),
        (json!({"kenmerken": {"a": {}}}), "kenmerken.a"),
        (json!({"hoofdObject": "zaken/1"}), "hoofdObject"),
        (json!({"perSeconde": 0}), "perSeconde"),
        (json!({"from": "2026-01-01T00:00:00Z"}), "from"),
    ] {
        for path in [RESEND.to_owned(), format!("{RESEND}/count")] {
            let problem = native(&server, "POST", &path, &body).expect(422);
            assert_eq!(
                (&problem["code"], &problem["field"]),
                (&json!("invalid_request"), &json!(field)),
                "{problem}"
            );
        }
    }
    // Everything that is wrong is said at once.
    let both = json!({"kanaal": "anders", "van": "gisteren"});
    let detail = native(&server, "POST", RESEND, &both).expect(422)["detail"].to_string();
    assert!(detail.contains("kanaal: ") && detail.contains("van: "), "{detail}");
    // Without the tenant of the API, nobody would find the job again.
    let elsewhere = server.call("POST", RESEND).json(json!({})).send().expect(422);
    assert_eq!(elsewhere["field"], "Posthorn-Tenant");
    assert!(elsewhere["detail"].as_str().unwrap().contains("gemeente"), "{elsewhere}");
    let jobs = native(&server, "GET", "/v1/jobs", &Value::Null).expect(200);
    assert_eq!(jobs["items"], json!([]), "nothing was begun");
    server.stop();
}
