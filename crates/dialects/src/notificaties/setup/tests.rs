use super::*;

fn read(document: &Value) -> Result<Setup, Vec<String>> {
    let env = |name: &str| (name == "GEHEIM").then(|| "from the environment".to_owned());
    Setup::read(document, &env)
}

fn whole() -> Value {
    json!({
        "notifications_kanalen_config_enable": true,
        "notifications_kanalen_config": {"items": [
            {"naam": "zaken", "documentatie_link": "https://docs.example/zaken",
             "filters": ["bronorganisatie", "zaaktype"]},
        ]},
        "notifications_abonnementen_config_enable": true,
        "notifications_abonnementen_config": {"items": [{
            "uuid": "0f616bfd-aacc-4d85-a140-2af17a56217b",
            "callback_url": "https://example.com/callback",
            "auth_type": "zgw", "auth_client_id": "client",
            "secret": {"value_from": {"env": "GEHEIM"}},
            "kanalen": [{"naam": "zaken", "filters": {"zaaktype": "*"}}],
            "send_cloudevents": true,
            "cloudevent_filters": [{"type_substring": "nl.overheid", "filters": {}}],
        }]},
        "notifications_config_enable": true,
        "notifications_config": {
            "notification_delivery_max_retries": 3,
            "notification_delivery_retry_backoff": true,
        },
        "vng_api_common_credentials_config_enable": true,
        "vng_api_common_credentials": {"items": [
            {"identifier": "open-zaak", "secret": {"value_from": {"env": "GEHEIM"}}},
        ]},
        "vng_api_common_applicaties_config_enable": true,
        "vng_api_common_applicaties": {"items": [
            {"client_ids": ["open-zaak"], "label": "Open Zaak", "has_all_authorizations": true},
            {"client_ids": ["lezer"], "scopes": ["notificaties.consumeren"]},
        ]},
        "zgw_consumers_config_enable": true,
        "zgw_consumers": {"services": []},
    })
}

#[test]
fn the_file_of_the_original_is_read_as_it_is() {
    let setup = read(&whole()).expect("read");
    assert_eq!((setup.kanalen.len(), setup.abonnementen.len()), (1, 1));
    let (uuid, abonnement) = &setup.abonnementen[0];
    assert_eq!(uuid.to_string(), "0f616bfd-aacc-4d85-a140-2af17a56217b");
    assert!(abonnement.send_cloudevents);
    assert_eq!(abonnement.cloudevent_filters[0].type_substring, "nl.overheid");
    assert_eq!(abonnement.kanalen[0].filters["zaaktype"], "*");
    assert_eq!((setup.settings.max_retries, setup.settings.retry_backoff), (Some(3), Some(1.0)));
    assert_eq!(setup.credentials[0].secret.expose(), b"from the environment");
    assert!(setup.applications[0].all && !setup.applications[1].all);
    assert_eq!(setup.applications[1].scopes, [Scope::Consume]);
    assert_eq!(setup.ignored, ["zgw_consumers"]);
}

#[test]
fn parts_of_types_may_be_texts_and_the_last_of_two_counts() {
    let mut document = whole();
    let items = document["notifications_abonnementen_config"]["items"].as_array_mut();
    let items = items.expect("a list");
    let mut again = items[0].clone();
    again["cloudevent_filters"] = json!(["zaak.created", "nl.overheid"]);
    again["kanalen"] = Value::Null;
    items.push(again);
    document["notifications_config"]["notifications_api_service_identifier"] = json!("nrc");
    let setup = read(&document).expect("read");
    assert_eq!(setup.abonnementen.len(), 1);
    let abonnement = &setup.abonnementen[0].1;
    let parts: Vec<&str> =
        abonnement.cloudevent_filters.iter().map(|f| f.type_substring.as_str()).collect();
    assert_eq!(parts, ["zaak.created", "nl.overheid"]);
    assert!(abonnement.kanalen.is_empty());
}

#[test]
fn the_service_that_is_asked_for_rights_is_found_among_the_others() {
    let mut document = whole();
    document["autorisaties_api_config_enable"] = json!(true);
    document["autorisaties_api"] = json!({"authorizations_api_service_identifier": "ac"});
    let problems = read(&document).expect_err("no such service").join(" ");
    assert!(problems.contains("`ac`"), "{problems}");
    document["zgw_consumers"]["services"] = json!([
        {"identifier": "other", "api_root": "http://other/"},
        {"identifier": "ac", "api_root": "http://ac/api/v1/", "client_id": "nrc",
         "auth_type": "zgw", "secret": {"value_from": {"env": "GEHEIM"}}},
    ]);
    let setup = read(&document).expect("read");
    let service = setup.authorizations.expect("asked");
    assert_eq!((service.url.as_str(), service.client_id.as_str()), ("http://ac/api/v1", "nrc"));
    assert_eq!(service.secret.expose(), b"from the environment");
    assert!(setup.ignored.is_empty());
    document["zgw_consumers"]["services"][1]["auth_type"] = json!("api_key");
    assert!(read(&document).expect_err("refused").join(" ").contains("only zgw"));
}

#[test]
fn clients_have_the_secrets_and_rights_that_are_declared() {
    let clients = read(&whole()).expect("read").clients();
    let of = |name: &str| {
        let change = &clients[name];
        (change.secret.is_some(), change.scopes.clone().flatten().map_or(0, |s| s.len()))
    };
    assert_eq!((of("open-zaak"), of("lezer"), clients.len()), ((true, 2), (false, 1), 2));
}

#[test]
fn sections_without_their_flag_are_not_applied() {
    let mut document = whole();
    document["notifications_abonnementen_config_enable"] = json!(false);
    document.as_object_mut().expect("sections").remove("notifications_config_enable");
    let setup = read(&document).expect("read");
    assert!(setup.abonnementen.is_empty() && setup.settings.is_empty());
    assert_eq!(setup.kanalen.len(), 1);
    assert!(read(&json!({})).expect("nothing is fine").kanalen.is_empty());
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place() {
    #[track_caller]
    fn check(change: impl Fn(&mut Value), says: &[&str]) {
        let mut document = whole();
        change(&mut document);
        let problems = read(&document).expect_err("refused").join("\n");
        for part in says {
            assert!(problems.contains(part), "`{part}` is not in {problems}");
        }
    }
    let abonnement = |d: &mut Value, name: &str, value: Value| {
        d["notifications_abonnementen_config"]["items"][0][name] = value;
    };
    check(|d| abonnement(d, "uuid", json!("1")), &["abonnementen_config.items.0", "UUID"]);
    check(|d| abonnement(d, "callback", json!("x")), &["`callback` is not known"]);
    check(|d| abonnement(d, "callback_url", json!("x")), &["callbackUrl"]);
    check(|d| abonnement(d, "auth_type", json!("magic")), &["authType", "api_key"]);
    check(
        |d| {
            abonnement(d, "kanalen", json!([]));
            abonnement(d, "cloudevent_filters", json!([]));
        },
        &["needs kanalen or cloudevent_filters"],
    );
    check(
        |d| abonnement(d, "secret", json!({"value_from": {"env": "NONE"}})),
        &["items.0.secret", "NONE"],
    );
    check(
        |d| d["notifications_kanalen_config"]["items"][0]["naam"] = json!("x".repeat(51)),
        &["kanalen_config.items.0", "naam"],
    );
    check(|d| d["notifications_kanalen_config"] = json!([]), &["needs a list `items`"]);
    check(|d| d["notifications_config"] = json!({"retries": 1}), &["no setting retries"]);
    check(
        |d| d["vng_api_common_applicaties"]["items"][1]["scopes"] = json!(["alles"]),
        &["applicaties.items.1", "notificaties.publiceren"],
    );
    check(
        |d| d["vng_api_common_credentials"]["items"][0] = json!({"identifier": "a"}),
        &["credentials.items.0", "secret"],
    );
    assert!(read(&json!([])).is_err());
}
