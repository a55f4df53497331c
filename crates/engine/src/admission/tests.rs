use super::*;

fn admission(options: AdmissionOptions) -> Arc<Admission> {
    Arc::new(Admission::new(options))
}

const TENANT: TenantId = TenantId::DEFAULT;

/// Lets `waiting` events wait and commits groups of them at a steady pace for a while. Those that
/// are let in afterwards join.
async fn run(
    admission: &Arc<Admission>,
    tickets: &mut std::collections::VecDeque<Ticket>,
    offered: usize,
    per_10ms: usize,
    time: Duration,
) -> (usize, usize) {
    let gauge = admission.gauge(TENANT);
    let (mut let_in, mut refused) = (0, 0);
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..offered {
            match admission.publish(TENANT) {
                Ok(()) => {
                    let_in += 1;
                    tickets.push_back(admission.wait(&gauge, Instant::now()));
                }
                Err(e) => {
                    assert_eq!(e, Refused::Overloaded);
                    refused += 1;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let group: Vec<Ticket> = tickets.drain(..per_10ms.min(tickets.len())).collect();
        if let Some(youngest) = group.last() {
            admission.committed(&gauge, group.len(), youngest.since);
        }
    }
    (let_in, refused)
}

#[tokio::test(start_paused = true)]
async fn ten_times_the_load_is_shed_and_as_much_is_committed_as_without() {
    let admission = admission(AdmissionOptions::default());
    let mut tickets = std::collections::VecDeque::new();
    let second = Duration::from_secs(1);
    // 10,000 a second are committed, and as many come.
    let (_, refused) = run(&admission, &mut tickets, 100, 100, second * 5).await;
    assert_eq!(refused, 0);
    // Ten times as many: first a burst is borne, then all but what fits into the target is refused.
    run(&admission, &mut tickets, 1_000, 100, second * 2).await;
    assert!(admission.overloaded_for().is_some_and(|span| span < second * 3));
    assert!(admission.is_overloaded() && admission.commit_wait().is_some());
    run(&admission, &mut tickets, 1_000, 100, second * 10).await;
    let (let_in, refused) = run(&admission, &mut tickets, 1_000, 100, second * 10).await;
    assert!((98_000..=102_000).contains(&let_in), "{let_in}");
    assert!(refused > 890_000, "{refused}");
    assert!(
        admission.waiting() <= 1_100,
        "{} wait, a tenth of a second's worth",
        admission.waiting()
    );
    // Back to what can be borne.
    run(&admission, &mut tickets, 50, 100, second * 3).await;
    assert!(!admission.is_overloaded());
    let (_, refused) = run(&admission, &mut tickets, 100, 100, second * 5).await;
    assert_eq!(refused, 0);
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_is_over_in_time_is_borne() {
    let admission = admission(AdmissionOptions::default());
    let mut tickets = std::collections::VecDeque::new();
    let (_, refused) = run(&admission, &mut tickets, 700, 100, Duration::from_millis(100)).await;
    assert_eq!(refused, 0);
    let (_, refused) = run(&admission, &mut tickets, 0, 100, Duration::from_secs(2)).await;
    assert_eq!((refused, admission.is_overloaded()), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_commits_nothing_is_not_waited_for() {
    let admission = admission(AdmissionOptions::default());
    let gauge = admission.gauge(TENANT);
    let tickets: Vec<Ticket> = (0..500).map(|_| admission.wait(&gauge, Instant::now())).collect();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert_eq!(admission.publish(TENANT), Ok(()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(admission.publish(TENANT), Err(Refused::Overloaded));
    drop(tickets);
    assert_eq!(admission.publish(TENANT), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_over_its_quota_is_refused_and_no_other() {
    let options = AdmissionOptions { pending_per_tenant: 3, ..AdmissionOptions::default() };
    let admission = admission(options);
    let other = TenantId::from_bytes([7; 16]);
    admission.add_pending(TENANT, 3);
    assert_eq!(admission.publish(TENANT), Err(Refused::Quota { pending: 3, quota: 3 }));
    assert_eq!(admission.publish(other), Ok(()));
    admission.add_pending(TENANT, -1);
    assert_eq!(admission.publish(TENANT), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn every_limit_can_be_switched_off() {
    let options = AdmissionOptions {
        commit_delay: Duration::ZERO,
        pending_per_tenant: 0,
        ..AdmissionOptions::default()
    };
    let admission = admission(options);
    let gauge = admission.gauge(TENANT);
    let _tickets: Vec<Ticket> = (0..500).map(|_| admission.wait(&gauge, Instant::now())).collect();
    admission.add_pending(TENANT, i64::MAX);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(admission.publish(TENANT), Ok(()));
    admission.set_disk_full(true);
    assert_eq!(admission.publish(TENANT), Err(Refused::DiskFull));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_for_counts_that_are_too_old() {
    let options = AdmissionOptions { pending_per_tenant: 3, ..AdmissionOptions::default() };
    let admission = admission(options);
    admission.add_pending(TENANT, 3);
    for _ in 0..2 {
        admission.counted(false);
        assert!(admission.publish(TENANT).is_err(), "a count or two may fail");
    }
    admission.counted(false);
    assert_eq!(admission.publish(TENANT), Ok(()));
    admission.counted(true);
    assert!(admission.publish(TENANT).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_overloaded_closes_the_door_to_nobody_else() {
    let admission = admission(AdmissionOptions::default());
    let mut tickets = std::collections::VecDeque::new();
    run(&admission, &mut tickets, 1_000, 100, Duration::from_secs(3)).await;
    assert!(admission.is_overloaded());
    assert_eq!(admission.publish(TENANT), Err(Refused::Overloaded));
    let other = TenantId::from_bytes([7; 16]);
    assert_eq!(admission.publish(other), Ok(()));
    let gauge = admission.gauge(other);
    let _one = admission.wait(&gauge, Instant::now());
    assert_eq!(admission.publish(other), Ok(()));
    // It goes away: that is the end of it, also when nothing of it is committed any more.
    drop(tickets);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!admission.is_overloaded());
}
