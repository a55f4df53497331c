update folded_rollup set at = $1::int8, scope = $2::text, node = $3::uuid
