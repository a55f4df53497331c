-- Seldom: ids are made in the moment of what they name.
update skew set millis = $1::int8 where millis < $1::int8
