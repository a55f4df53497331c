-- For deliveries that are made later than their events, or seem to have been made earlier.
update skew set millis = greatest(millis, $1::int8), later = greatest(later, $2::int8)
where millis < $1::int8 or later < $2::int8
