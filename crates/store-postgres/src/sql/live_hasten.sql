-- One live delivery is due now, with a fresh budget; a parked one keeps waiting for its turn. The
-- caller holds its row. Plan: primary key.
update delivery_live
set state = 0, budget_base = attempts, budget_began = $2::int8, held_until = null,
    revival = revival + 1,
    due_at = case when due_at = 9223372036854775807 then due_at else $2::int8 end
where id = $1
