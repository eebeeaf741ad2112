-- +goose Up

-- Text by which rows are found is compared byte by byte on PostgreSQL, as on SQLite:
-- an index in the order of some language holds only as long as the system's idea of
-- that language does. After its upgrade, or on a standby with another system, addresses
-- would not be found any more. New columns for indexes are of {text}.
-- All of them are locked first: what is done under these locks, indexes made anew,
-- would be for nothing if others were in the way of the last one.
{postgres}LOCK TABLE account, alias, dashboard_user, delivery, dkim_key, domain, duty, event, folder, idempotency, limit_window, mailbox, message, node, outbound_message, outbound_trace, queue_hold, queue_nudge, remark, sts_policy, subscription, suppression, template, vacation_answer, webhook_delivery IN ACCESS EXCLUSIVE MODE;
{postgres}ALTER TABLE account ALTER COLUMN email TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE alias ALTER COLUMN address TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE dashboard_user ALTER COLUMN email TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE delivery ALTER COLUMN destination TYPE TEXT COLLATE "C", ALTER COLUMN state TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE dkim_key ALTER COLUMN algorithm TYPE TEXT COLLATE "C", ALTER COLUMN selector TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE domain ALTER COLUMN name TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE duty ALTER COLUMN name TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE event ALTER COLUMN kind TYPE TEXT COLLATE "C", ALTER COLUMN recipient TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE folder ALTER COLUMN name TYPE TEXT COLLATE "C", ALTER COLUMN special TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE idempotency ALTER COLUMN key TYPE TEXT COLLATE "C", ALTER COLUMN path TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE limit_window ALTER COLUMN name TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE mailbox ALTER COLUMN address TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE message ALTER COLUMN thread TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE node ALTER COLUMN name TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE outbound_message ALTER COLUMN thread_id TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE outbound_trace ALTER COLUMN thread_id TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE queue_hold ALTER COLUMN kind TYPE TEXT COLLATE "C", ALTER COLUMN target TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE queue_nudge ALTER COLUMN destination TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE remark ALTER COLUMN mark TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE sts_policy ALTER COLUMN domain TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE subscription ALTER COLUMN name TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE suppression ALTER COLUMN address TYPE TEXT COLLATE "C", ALTER COLUMN reason TYPE TEXT COLLATE "C", ALTER COLUMN scope TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE template ALTER COLUMN alias TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE vacation_answer ALTER COLUMN sender TYPE TEXT COLLATE "C";
{postgres}ALTER TABLE webhook_delivery ALTER COLUMN state TYPE TEXT COLLATE "C";
