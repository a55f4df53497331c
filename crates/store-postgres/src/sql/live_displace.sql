-- Heads of lanes have to wait for those that come before them, unless one got a lease since it was looked
-- at: what is under way is not overtaken. The caller holds the locks of the lanes. A claim or a record
-- that writes a head anew at the same moment leaves it out too: the new row is younger than this
-- statement. So who asks for more than it gets lets all go and looks again. They are held in the order of ids,
-- whatever the plan, so that nobody waits in a circle.
update delivery_live
set state = 0, held_until = due_at, due_at = 9223372036854775807, revival = revival + 1
where id = any(array(
    select held.id
    from (
        select l.id from delivery_live l
        where l.id = any($1::uuid[]) and not (l.state = 1 and l.due_at > $2::int8)
        order by l.id
        for update
    ) as held
))
returning id, subscription, revival
