-- The step at the end of each training. Models are also tested at eval steps; no board shows those tests.
create view lasts as
select run_id, max(step) as step
from results
where length is not null
group by run_id;

-- The rows that were measured at the end of a training, for queries.
create view final as
select r.*
from results as r
join lasts using (run_id, step)
where r.length is not null;
