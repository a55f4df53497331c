-- One live delivery is due now, with a fresh budget unless it keeps its own ($3); a parked one keeps waiting for its turn. The
-- caller holds its row. Plan: primary key.
update delivery_live
set state = 0, held_until = null,
    budget_base = case when $3::bool then budget_base else attempts end,
    budget_began = case when $3::bool then budget_began else $2::int8 end,
    revival = revival + 1,
    due_at = case when due_at = 9223372036854775807 then due_at else $2::int8 end
where id = $1
