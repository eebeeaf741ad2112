-- +goose Up

-- Whether deliveries of inbound_email events hold the content of the message: what
-- its header and its text say. Only who may read mail turns that on.
ALTER TABLE webhook ADD COLUMN content BOOLEAN NOT NULL DEFAULT TRUE;
-- The same for one delivery, so that turning it on leaves the bodies of earlier
-- deliveries as they are. NULL: a node of an earlier release made the delivery.
ALTER TABLE webhook_delivery ADD COLUMN content BOOLEAN;

-- Whether a member may read mail in the dashboard. Owners always may, members unless an
-- owner takes it away, readers if an owner allows it.
ALTER TABLE dashboard_member ADD COLUMN reads_mail BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE dashboard_member SET reads_mail = TRUE WHERE role <> 'reader';

-- An entry of the audit log is written before the change and completed after it, so
-- that no change lacks an entry. dashboard_audit.person is the id of the user, API key or
-- mailbox that did it, by actor.
ALTER TABLE dashboard_audit ADD COLUMN actor TEXT NOT NULL DEFAULT 'user';      -- user, api_key, mailbox, operator, nobody
ALTER TABLE dashboard_audit ADD COLUMN action {text} NOT NULL DEFAULT '';       -- stable name: an operation of the API, or a route
ALTER TABLE dashboard_audit ADD COLUMN object TEXT NOT NULL DEFAULT '';         -- id of what was changed or read; '' for none
ALTER TABLE dashboard_audit ADD COLUMN state TEXT NOT NULL DEFAULT 'done';      -- begun, done, failed
CREATE INDEX dashboard_audit_action ON dashboard_audit (account, action, id);
