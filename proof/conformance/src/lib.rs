//! One suite of behaviour that every store must pass.
//!
//! # What it is for
//! The doc comments of [`Store`] say what a store does; the cases here check each of
//! their sentences. A backend implements [`Fixture`] and calls
//! [`conformance_suite!`](crate::conformance_suite) in a test module; every case becomes a test of
//! its own, so a failure has a name.
//!
//! # Theory of operation
//! Cases are plain async functions, grouped by noun, that panic when the store is wrong. Each gets
//! a fresh store and makes its own tenant, so it does not matter what else a backend puts into an
//! empty store. Times are handed in, never read from a clock; only the cases about leases sleep,
//! since expiry is judged by the store alone.
//!
//! # What it must not know
//! How any store is built. It sees the contract and nothing else.

pub mod audit;
pub mod builders;
pub mod catalog;
pub mod certificates;
mod changes;
pub mod deletion;
pub mod expiring;
pub mod expunging;
pub mod failing;
pub mod following;
pub mod forgetting;
pub mod intake;
pub mod jobs;
pub mod kept_answers;
pub mod keys;
pub mod lanes;
pub mod lists;
pub mod maintenance;
pub mod membership;
pub mod model;
pub mod moving;
pub mod names;
pub mod once;
pub mod operator;
pub mod pruning;
pub mod push;
pub mod push_agents;
pub mod push_channels;
pub mod push_messages;
pub mod push_races;
pub mod push_reading;
pub mod push_upkeep;
pub mod queries;
pub mod realms;
pub mod record;
pub mod redrive;
pub mod revival;
pub mod rollups;
pub mod scheduling;
pub mod sessions;
pub mod telling;
#[cfg(test)]
mod tests;
pub mod traces;
pub mod upgrade;
pub mod work;

use std::sync::Arc;

use async_trait::async_trait;

use posthorn_store::Store;

/// How the suite gets at a store.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A fresh, empty store.
    async fn store(&self) -> Arc<dyn Store>;

    /// The same contents through a new handle, as after a crash between two calls. Durable stores
    /// drop the old handle without ceremony and open their data again; a store in memory returns
    /// the handle it was given. Leases need not survive.
    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store>;
}

/// Expands to one `#[tokio::test]` for each case, in modules named by noun. The argument is an
/// expression that makes a [`Fixture`](crate::Fixture); it is evaluated once per case.
#[macro_export]
macro_rules! conformance_suite {
    ($fixture:expr) => {
        $crate::conformance_cases! { $fixture;
            catalog {
                fresh_store_has_the_default_tenant
                versions_grow_and_belong_to_their_tenant
                everything_reads_back_as_it_was_written
                delta_has_changes_and_removals
                deltas_add_up_to_the_whole
                tenants_are_unique_by_id_and_name
                topics_are_put_again_and_keep_their_birth
                topics_are_created_once
                subscription_ids_are_never_used_again
                updates_check_the_version
                foreign_subscriptions_are_not_found
                refusals_change_nothing
                keys_are_created_once_and_revoked_for_good
                uses_of_keys_only_move_forward_and_change_no_version
                catalog_survives_reopening
            }
            audit {
                each_change_leaves_its_line
                what_changes_nothing_leaves_no_line
                a_line_may_go_with_no_change
                a_stale_plan_leaves_no_line
                filters_find_what_the_model_finds
                a_search_that_is_too_long_stops
                old_lines_go_in_bites
                a_deleted_tenant_leaves_one_line
            }
            sessions {
                sessions_read_back_as_written
                sessions_are_created_once
                a_link_is_redeemed_once
                one_of_many_redeems_a_link
                filters_of_sessions_find_what_the_model_finds
                a_search_for_sessions_that_is_too_long_stops
                sessions_end_in_each_way
                a_stale_plan_changes_no_session
                sessions_are_counted_while_they_last
                old_sessions_go_in_bites
                a_deleted_tenant_has_no_sessions
            }
            kept_answers {
                a_request_is_claimed_once
                an_answer_is_kept_for_whoever_repeats
                the_first_answer_stays
                a_claim_that_ran_out_keeps_its_seed
                a_released_claim_keeps_its_seed
                only_its_holder_releases_a_claim
                keys_count_until_their_time_is_over
                old_answers_go_in_bites
                one_of_many_claims_a_request
                answers_survive_reopening
            }
            certificates {
                certificates_read_back_as_written
                certificates_are_replaced_by_version
                deleted_certificates_are_gone_for_good
                callers_have_thumbprints_of_their_own
                foreign_certificates_are_not_found
            }
            failing {
                streaks_are_kept_until_a_success
                streaks_are_written_by_owners_only
                streaks_end_when_a_subscription_goes_on_or_leaves
                streaks_remember_that_they_were_told
                stops_read_back_as_they_were
            }
            keys {
                the_first_key_is_made_once
                a_key_that_has_run_out_is_no_first_key
                the_last_operator_key_cannot_be_revoked
                the_longest_operator_key_cannot_be_revoked
            }
            names {
                names_and_labels_read_back
                names_are_unique_among_those_that_exist
                one_of_many_gets_a_name
                profiles_of_tenants_come_and_go
                clients_come_and_go_by_version
            }
            intake {
                event_is_stored_as_it_was
                deliveries_start_pending
                repeats_are_recognised
                repeats_inside_one_batch_are_recognised
                keys_belong_to_their_tenant
                key_is_checked_before_the_plan
                stale_plan_changes_nothing_and_disturbs_nobody
                change_elsewhere_does_not_make_a_plan_stale
                seq_follows_batch_order
                event_without_deliveries_is_stored
                empty_batch_is_fine
                accepted_survives_reopening
                concurrent_repeats_are_one_event
            }
            lanes {
                second_is_parked
                next_goes_on_after_delivered
                next_goes_on_after_skipped_dead_letter
                next_goes_on_after_drop
                failed_head_keeps_its_place
                claimed_head_keeps_its_place
                dead_head_blocks_when_the_step_says_so
                redriven_blocked_head_runs_first
                cancelled_blocked_head_releases_the_lane
                retry_in_a_free_lane_is_due
                cancelled_head_promotes_the_next
                cancelled_parked_delivery_is_passed_over
                lanes_are_independent
                unordered_deliveries_are_never_parked
                one_batch_fills_a_lane_in_order
                concurrent_accepts_are_totally_ordered
                concurrent_accepts_and_records_leave_nobody_behind
                lanes_survive_reopening
            }
            work {
                pending_comes_by_due_time_then_seq
                pending_keeps_to_limit_and_time
                pending_answers_each_ask_in_order
                pending_keeps_to_bytes_but_gives_one
                pending_shares_events
                pending_leaves_out_ended_and_deleted
                due_subscriptions_have_their_earliest_time
                due_subscriptions_keep_to_their_shards
                due_subscriptions_leave_out_blocked_and_deleted
                claim_hides_until_the_lease_ends
                claim_is_refused_when_things_moved_on
                claim_is_fenced
                claim_needs_a_lease_that_runs
                claim_is_written_before_a_crash
            }
            record {
                delivered_is_final
                failure_waits_for_its_time
                postponing_charges_nothing
                attempts_read_back_as_they_were
                every_failure_code_reads_back
                every_kind_goes_into_one_batch
                items_are_judged_by_themselves
                wrong_epoch_is_fenced
                wrong_node_is_fenced
                unheld_shard_is_fenced
                outcomes_are_written_until_somebody_takes_the_shard
                other_count_is_superseded
                ended_delivery_supersedes
                unknown_delivery_is_superseded
                late_attempts_are_kept_and_marked
                repeating_is_harmless
                same_item_twice_in_one_batch_counts_once
                records_survive_reopening
            }
            operator {
                cancel_ends_a_pending_delivery
                cancel_of_an_ended_delivery_is_refused
                retry_gives_a_fresh_budget_and_keeps_history
                retry_works_on_every_ended_state
                retry_of_a_waiting_delivery_makes_it_due_with_a_fresh_budget
                retry_of_a_waiting_delivery_keeps_its_place_in_the_lane
                retry_under_a_living_lease_is_refused
                cancelled_attempt_under_way_holds_its_lane_until_the_lease_ends
                retry_without_subscription_is_refused
                foreign_deliveries_are_not_found
                moves_survive_reopening
            }
            once {
                one_attempt_is_stored_with_the_delivery
                one_attempt_of_a_waiting_delivery_keeps_its_budget
                one_attempt_waits_for_its_turn
                jobs_say_how_often_is_tried
            }
            forgetting {
                forgotten_delivery_is_gone_with_its_attempts
                forgetting_ends_what_has_not_ended
                late_result_for_a_forgotten_delivery_is_superseded
                forgotten_head_promotes_the_next
                forgotten_blocker_releases_the_lane
                forgotten_parked_delivery_is_passed_over
                forgotten_dead_letter_is_not_redriven
                foreign_deliveries_cannot_be_forgotten
                event_of_forgotten_deliveries_goes_by_its_age
                rest_of_an_event_stays_and_ends
                deliveries_of_deleted_subscriptions_can_be_forgotten
                forgotten_attempt_under_way_holds_its_lane_until_the_lease_ends
                forgetting_survives_reopening
            }
            redrive {
                redrive_moves_every_match_once
                redrive_keeps_to_its_filter
                redrive_keeps_to_its_tenant
                redrive_does_not_move_what_dies_again
                redrive_passes_over_deleted_subscriptions
                redrive_runs_lanes_in_order
                redrive_can_be_cancelled
                ended_redrive_stays_as_it_is
                redrives_are_listed_newest_first
                running_redrives_are_found_among_many
                ended_redrives_are_pruned
                redrive_ids_are_unique
                foreign_redrives_are_not_found
                redrive_progress_survives_reopening
            }
            revival {
                revived_delivery_goes_before_what_came_later
                displaced_head_keeps_its_time_and_its_budget
                revived_delivery_waits_for_a_leased_head
                revived_delivery_waits_in_a_blocked_lane
                revived_blocker_goes_behind_those_before_it
                displaced_head_makes_room_for_the_first
                revived_deliveries_keep_their_order
                attempt_of_a_displaced_head_counts_when_it_arrives
                copies_from_before_a_retry_change_nothing
                recalls_are_told_with_the_catalog
            }
            maintenance {
                deleted_subscription_is_cancelled_at_once
                sweep_cancels_in_slices
                sweep_without_work_does_nothing
                late_result_for_a_deleted_subscription_is_superseded
                ended_deliveries_of_deleted_subscriptions_stay
            }
            pruning {
                prune_removes_what_ended_long_ago
                prune_never_eats_unfinished_work
                prune_leaves_young_dead_letters
                prune_leaves_dead_letters_that_block_a_lane
                prune_removes_events_nobody_wanted
                prune_removes_old_keys
                prune_takes_small_bites
                what_was_removed_for_its_age_is_remembered
            }
            scheduling {
                times_read_back_as_they_were
                scheduled_delivery_is_due_at_its_time
                scheduled_delivery_is_outside_its_lane
                lanes_are_entered_by_time_and_then_commit_order
                entering_is_like_being_accepted
                what_ended_before_its_time_never_enters
                nothing_is_retried_before_its_time
                replays_wait_for_the_time_of_their_event
            }
            expiring {
                expired_events_go
                expiry_never_eats_unfinished_work
                expiry_leaves_dead_letters_that_block_a_lane
                retention_counts_from_the_time_of_delivery
                the_retention_of_all_counts_too
            }
            membership {
                free_shards_are_granted_once
                own_shards_are_given_again_under_a_greater_epoch
                expired_lease_can_be_taken_over
                heartbeat_renews_shards
                an_expired_lease_that_nobody_took_keeps_its_epoch
                a_heartbeat_takes_nothing_back
                released_shards_are_free
                release_under_another_epoch_changes_nothing
                departed_node_is_gone
                dead_nodes_are_forgotten
                lost_nodes_are_told_from_those_that_left
                the_last_sign_of_each_node_is_told
                heartbeat_tells_the_catalog_version
                two_nodes_never_hold_one_shard
                epochs_survive_reopening
                notify_is_only_a_hint
            }
            jobs {
                jobs_read_back_as_written
                a_subscription_comes_with_its_job
                what_was_missed_is_made_once
                what_ended_is_tried_again
                a_late_bite_does_nothing
                what_cannot_be_done_is_passed_over
                made_deliveries_come_last_in_their_lane
                made_deliveries_are_pruned_with_their_event
                a_failed_job_says_why
                events_and_states_are_read_in_batches
                fan_outs_count_all_deliveries_of_an_event
                tallies_tell_what_became_of_an_events_deliveries
                several_deliveries_of_one_event_are_tried_again_at_once
                running_jobs_leave_nobody_out
            }
            moving {
                what_matches_is_cancelled
                what_does_not_match_any_more_stays
                what_matches_is_forgotten
                a_lane_goes_on_after_many_went
                what_matches_is_tried_again
                what_is_tried_again_comes_back_to_its_place
                strangers_and_late_bites_change_nothing
            }
            expunging {
                an_event_stays_without_its_payload
                unfinished_work_keeps_its_payload
                what_was_expunged_is_never_due_again
                responses_go_with_their_event
                one_response_goes_alone
                deliveries_of_the_deleted_keep_nothing
                a_job_passes_over_what_has_not_ended
                expunged_events_are_pruned_as_before
                expunging_and_bringing_back_at_once
            }
            telling {
                a_record_tells_in_its_transaction
                late_writers_tell_nothing
                a_stale_record_leaves_no_trace
                what_is_told_waits_in_its_lane
                a_change_tells_on_the_version_before_it
                a_refused_change_tells_nothing
                a_stale_change_changes_nothing
                a_job_tells_with_its_subscription
                the_end_of_a_job_is_told_once
                the_end_of_a_redrive_is_told_once
                an_end_that_moved_on_is_not_told
                what_was_told_survives_reopening
            }
            realms {
                realms_read_back_and_keep_their_birth
                a_realm_goes_when_it_is_empty
                unknown_realms_take_nothing_in
                keys_of_realms_replace_no_operator_key
                event_types_come_and_go
                tenants_change_in_part
                names_and_external_ids_are_unique
            }
            deletion {
                nothing_comes_in_any_more
                nothing_slips_in_beside_it
                everything_goes_and_the_name_is_free
                it_goes_in_bites
                late_results_change_nothing
                others_lose_nothing
                its_end_is_told_once
                its_other_jobs_stop
                its_figures_go
            }
            lists {
                lists_go_both_ways
                events_can_be_filtered
                deliveries_can_be_filtered
                attempts_can_be_filtered
                made_up_places_are_harmless
                events_are_listed_from_one_on
                long_histories_are_listed_like_the_model
            }
            following {
                the_log_is_followed_from_its_end
                every_page_goes_on_where_the_last_one_ended
                tenants_are_followed_apart_and_together
                attempts_come_with_what_they_led_to
                events_of_one_commit_keep_their_order
                what_is_large_is_not_read
                what_is_old_is_passed_over
                what_was_removed_is_left_out
                made_up_places_of_the_log_are_harmless
                following_survives_reopening
                writers_at_once_are_all_seen_once
            }
            rollups {
                what_a_node_wrote_last_counts
                nodes_add_up
                rollups_come_with_outcomes
                ranges_have_a_beginning_and_an_end
                hours_are_the_sum_of_their_minutes
                old_rollups_go_when_they_are_in_their_hours
                rollups_survive_reopening
                writers_at_once_lose_nothing
                many_scopes_are_summed_up
                sums_begin_where_there_are_too_many_rows
                unfinished_deliveries_are_counted_by_subscription
            }
            traces {
                traces_come_back_as_they_were
                work_comes_with_its_trace
            }
            queries {
                tenants_do_not_see_each_other
                counts_are_conserved
                unfinished_deliveries_are_counted_by_tenant
                tenants_are_counted_together
                deliveries_are_read_together
                ping_answers
            }
        }
    };
}

/// The expansion behind [`conformance_suite!`](crate::conformance_suite).
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($fixture:expr; $($noun:ident { $($case:ident)* })*) => {
        $($crate::conformance_noun! { $fixture; $noun; $($case)* })*
    };
}

/// The tests of one noun.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_noun {
    ($fixture:expr; $noun:ident; $($case:ident)*) => {
        mod $noun {
            #[allow(unused_imports, reason = "the expression may use anything around it")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let fixture = $fixture;
                    $crate::$noun::$case(&fixture).await;
                }
            )*
        }
    };
}
