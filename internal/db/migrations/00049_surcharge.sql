-- +goose Up

-- reads mailbox_usage: folder
-- reads blob: db

-- A message counts for at least 1,024 bytes (mailbox.MinCharge). surcharge is what
-- small messages count for beyond their sizes; bytes stays the sum of sizes.
ALTER TABLE mailbox_usage ADD COLUMN surcharge BIGINT NOT NULL DEFAULT 0;
ALTER TABLE folder ADD COLUMN surcharge BIGINT NOT NULL DEFAULT 0;
-- 2 * uid_next - messages grows by one with each arrival and each removal.
-- surcharge_mark grows by the same wherever surcharge is kept up. While the two
-- differ, as they do in every folder before its first recount and after changes by
-- a release that knows no surcharge, folder.Recount counts the folder again.
ALTER TABLE folder ADD COLUMN surcharge_mark BIGINT NOT NULL DEFAULT 0;
