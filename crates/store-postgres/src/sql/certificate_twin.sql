-- Seeks certificate_caller.
select 1 from certificate
where kind = 'caller' and not removed and thumbprint = $1 and id <> $2
