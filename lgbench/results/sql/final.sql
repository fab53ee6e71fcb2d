-- The step at the end of each training. Models are also tested while they train, which no board shows.
create view lasts as
select run_id, max(last_step) as step
from kinds
group by run_id;

-- The rows that were measured at the end, for queries.
create view final as
select r.*
from results as r
join lasts using (run_id, step)
where r.length is not null;
