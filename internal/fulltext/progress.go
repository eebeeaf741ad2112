// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	"github.com/mailstead/mailstead/internal/db"
)

// Progress returns the last message that the index in a file has seen. Another process may have the
// file open. When the value no longer rises, all messages are indexed.
func Progress(ctx context.Context, path string) (upTo db.ID, err error) {
	file, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro")
	if err != nil {
		return 0, fmt.Errorf("opening the search index: %w", err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if err := file.QueryRowContext(ctx, passProgressQuery, 0).Scan(&upTo); err != nil {
		return 0, fmt.Errorf("reading the search index: %w", err)
	}
	return upTo, nil
}
