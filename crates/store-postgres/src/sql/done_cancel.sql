-- A dead letter that blocks its lane is cancelled after all.
with freed as (
    delete from lane_block where delivery = $2
)
update delivery_done set state = $3::int2, ended_at = $4::int8, revival = revival + 1
where tenant = $1 and id = $2
