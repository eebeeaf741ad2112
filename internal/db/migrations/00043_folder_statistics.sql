-- +goose Up

-- reads account: backup

-- PostgreSQL finds messages by a list of UIDs either one by one or by reading the
-- whole folder, which is quicker where folders hold a dozen. What it learns of the
-- average folder, or learnt before a large one was filled, made it read a million
-- rows for sixteen. Knowing nothing of folders, and that UIDs differ, it goes by
-- the size of the table. To give a column its own type forgets what was learnt.
{postgres}ALTER TABLE folder_message ALTER COLUMN folder TYPE BIGINT, ALTER COLUMN uid TYPE BIGINT;
{postgres}ALTER TABLE folder_message ALTER COLUMN folder SET STATISTICS 0;
{postgres}ALTER TABLE folder_message ALTER COLUMN uid SET (n_distinct = -1);
