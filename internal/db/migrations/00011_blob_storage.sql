-- +goose Up

-- Messages of up to 8 KB stay in their row instead of being cut into chunks,
-- and are not compressed: that cost more than everything else in storing one.
{postgres} ALTER TABLE blob SET (toast_tuple_target = 8160);
{postgres} ALTER TABLE blob ALTER COLUMN bytes SET STORAGE EXTERNAL;
