// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"net/http"
	"time"
)

// exportWriteTimeout limits how long the client may take to read a page of an export.
const exportWriteTimeout = time.Minute

// CSVResponseWriter is a response with an export. It starts with the first bytes, so that an
// earlier failure can still become an error response. It extends the deadline while the client
// reads.
type CSVResponseWriter struct {
	http.ResponseWriter
	Started bool
}

func (c *CSVResponseWriter) Write(p []byte) (int, error) {
	if !c.Started {
		c.Started = true
		c.Header().Set("Content-Type", "text/csv; charset=utf-8")
		c.Header().Set("Content-Disposition", `attachment; filename="suppressions.csv"`)
	}
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Now().Add(exportWriteTimeout)) // the server has its own limit, too
	return c.ResponseWriter.Write(p)
}
