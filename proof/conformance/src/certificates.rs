//! Cases about the registry of certificates.

use posthorn_domain::{
    CatalogVersion, Certificate, CertificateId, CertificateKind, TenantId, Thumbprint,
};

use super::Fixture;
use super::builders::{Setting, at, certificate, unique};
use super::changes::{change, refused, since};
use posthorn_store::{CatalogChange, Refusal, Result};

async fn create(setting: &Setting, certificate: &Certificate) -> Result<CatalogVersion> {
    change(setting, CatalogChange::CreateCertificate(Box::new(certificate.clone()))).await
}

/// All fields of all kinds come back, now and after a crash.
pub async fn certificates_read_back_as_written(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut all: Vec<Certificate> =
        CertificateKind::ALL.map(|kind| certificate(setting.tenant, kind)).into();
    all[1].sealed_key = None;
    all[1].owner = String::new();
    all[2].scopes = Vec::new();
    all[2].revoked_at = Some(at(3));
    for certificate in &mut all {
        certificate.version = create(&setting, certificate).await.expect("create");
    }
    assert_eq!(setting.version_of(setting.tenant).await, all[2].version);
    let mut found = since(&setting, CatalogVersion(0)).await.certificates;
    found.sort_by_key(|certificate| certificate.id);
    assert_eq!(found, all);
    let setting = setting.reopen(fixture).await;
    let mut found = since(&setting, CatalogVersion(0)).await.certificates;
    found.sort_by_key(|certificate| certificate.id);
    assert_eq!(found, all);
}

/// An update replaces the contents of the version that was read, and nothing that must stay.
pub async fn certificates_are_replaced_by_version(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let first = certificate(setting.tenant, CertificateKind::Client);
    let created = create(&setting, &first).await.expect("create");
    let wanted = Certificate {
        kind: CertificateKind::Caller,
        owner: "NL".to_owned(),
        host: "other.example".to_owned(),
        thumbprint: Thumbprint([9; 32]),
        pem: "new".to_owned(),
        sealed_key: None,
        not_after: at(9_000),
        created_at: at(77),
        updated_at: at(78),
        revoked_at: Some(at(79)),
        ..first.clone()
    };
    let update = |expected| CatalogChange::UpdateCertificate {
        certificate: Box::new(wanted.clone()),
        expected,
    };
    let second = change(&setting, update(created)).await.expect("update");
    let delta = since(&setting, created).await;
    let expected = Certificate {
        kind: first.kind,
        created_at: first.created_at,
        revoked_at: None,
        version: second,
        ..wanted.clone()
    };
    assert_eq!(delta.certificates, [expected]);
    refused(change(&setting, update(created)).await, Refusal::VersionMismatch { current: second });
    let revoke =
        CatalogChange::RevokeCertificate { tenant: setting.tenant, id: first.id, at: at(80) };
    let third = change(&setting, revoke.clone()).await.expect("revoke");
    change(&setting, revoke).await.expect("revoking again is fine");
    change(&setting, update(third)).await.expect("update");
    let whole = since(&setting, CatalogVersion(0)).await;
    assert_eq!(whole.certificates[0].revoked_at, Some(at(80)), "an update does not bring it back");
}

/// One that is deleted leaves its id taken and tells others that it is gone.
pub async fn deleted_certificates_are_gone_for_good(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let first = certificate(setting.tenant, CertificateKind::Caller);
    let created = create(&setting, &first).await.expect("create");
    let delete = CatalogChange::DeleteCertificate { tenant: setting.tenant, id: first.id };
    let deleted = change(&setting, delete.clone()).await.expect("delete");
    let delta = since(&setting, created).await;
    assert_eq!(delta.version, deleted);
    assert_eq!(delta.removed_certificates, [(setting.tenant, first.id)]);
    assert!(delta.certificates.is_empty());
    refused(change(&setting, delete).await, Refusal::NotFound);
    refused(create(&setting, &first).await, Refusal::AlreadyExists);
    let again = Certificate { id: CertificateId::new(at(0), unique().into()), ..first };
    create(&setting, &again).await.expect("its thumbprint is free again");
}

/// Callers are told by their thumbprints, which no two of them share, in whichever tenant.
pub async fn callers_have_thumbprints_of_their_own(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let caller = certificate(setting.tenant, CertificateKind::Caller);
    create(&setting, &caller).await.expect("create");
    let same =
        |tenant, kind| Certificate { thumbprint: caller.thumbprint, ..certificate(tenant, kind) };
    for tenant in [setting.tenant, other] {
        let twin = same(tenant, CertificateKind::Caller);
        refused(create(&setting, &twin).await, Refusal::AlreadyExists);
        create(&setting, &same(tenant, CertificateKind::Client)).await.expect("another kind");
    }
    let mut second = certificate(other, CertificateKind::Caller);
    let version = create(&setting, &second).await.expect("create");
    second.thumbprint = caller.thumbprint;
    let update =
        CatalogChange::UpdateCertificate { certificate: Box::new(second), expected: version };
    refused(change(&setting, update).await, Refusal::AlreadyExists);
    assert_eq!(since(&setting, version).await.version, version, "refusals leave no trace");
}

/// Another tenant's certificate looks as if it did not exist.
pub async fn foreign_certificates_are_not_found(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mine = certificate(setting.tenant, CertificateKind::Client);
    let version = create(&setting, &mine).await.expect("create");
    let unknown = CertificateId::new(at(0), unique().into());
    for (tenant, id) in [(other, mine.id), (setting.tenant, unknown)] {
        let contents = Certificate { id, tenant, ..mine.clone() };
        for attempt in [
            CatalogChange::UpdateCertificate { certificate: Box::new(contents), expected: version },
            CatalogChange::RevokeCertificate { tenant, id, at: at(1) },
            CatalogChange::DeleteCertificate { tenant, id },
        ] {
            refused(change(&setting, attempt).await, Refusal::NotFound);
        }
    }
    let stranger = TenantId::new(at(0), unique().into());
    let lost = certificate(stranger, CertificateKind::Client);
    refused(create(&setting, &lost).await, Refusal::NotFound);
    assert_eq!(since(&setting, version).await.version, version);
}
