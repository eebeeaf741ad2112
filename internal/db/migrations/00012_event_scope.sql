-- +goose Up

-- What an event is about, for lists, webhooks and figures.
ALTER TABLE event ADD COLUMN domain BIGINT NOT NULL DEFAULT 0;      -- of the sender, the mailbox, or itself; 0 for none
ALTER TABLE event ADD COLUMN mailbox BIGINT NOT NULL DEFAULT 0;     -- 0 for none
ALTER TABLE event ADD COLUMN recipient TEXT NOT NULL DEFAULT '';    -- as suppressions are keyed; '' for none
ALTER TABLE event ADD COLUMN status TEXT NOT NULL DEFAULT '';       -- data.status; '' for none
UPDATE event SET domain = COALESCE((SELECT domain FROM outbound_message WHERE outbound_message.id = event.message), 0) WHERE message > 0;
CREATE INDEX event_recipient ON event (account, recipient, position) WHERE recipient <> '' AND position IS NOT NULL;
CREATE INDEX event_kind ON event (account, kind, position) WHERE position IS NOT NULL;
