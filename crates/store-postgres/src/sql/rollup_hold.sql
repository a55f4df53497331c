-- Who adds minutes to hours does so alone.
select at, scope, node from folded_rollup for update
