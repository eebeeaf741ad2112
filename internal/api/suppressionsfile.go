// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/web"
)

// maxImportBytes limits the size of an import file.
const maxImportBytes = 16 << 20

// suppressionFileRoutes registers the streaming import and export of the list as CSV.
func (a *API) suppressionFileRoutes(r *router) {
	in := operation{method: "POST", path: "/suppressions/import", id: "importSuppressions", scope: "suppressions.write", requestMedia: "text/csv", maxBodyBytes: maxImportBytes,
		summary: "Import suppressed addresses", description: "Takes a CSV file of at most 100,000 rows and 16 MB, such as the exports of this and other services: " +
			"columns named email, address or recipient, reason, created, and error; without a first line of names, address, reason and time in this order. " +
			"Lines that can't be read are told and left out, the others added; an address that is on the list stays there as it is. " +
			"A file can be sent again."}
	describeOperation[importSuppressionsInput, suppressionImportResponse](r.doc, in)
	r.register(in, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		out, err := a.importSuppressions(w, req, p)
		if err != nil {
			return err
		}
		return in.respond(w, out)
	})
	out := operation{method: "GET", path: "/suppressions/export", id: "exportSuppressions", scope: "suppressions.read", responseMedia: "text/csv; charset=utf-8",
		summary: "Export suppressed addresses", description: "The whole list as CSV, oldest first. Cells that a spreadsheet would take for a formula begin with an apostrophe, which the import removes."}
	describeOperation[struct{}, []byte](r.doc, out)
	r.register(out, a.exportSuppressions)
}

type importSuppressionsInput struct {
	Reason string `query:"reason" enum:"bounce,complaint,unsubscribe,manual" default:"manual" doc:"The reason of rows that tell none."`
}

type suppressionImportResponse struct {
	Added    int                 `json:"added" doc:"Rows that are new on the list." example:"120"`
	Existing int                 `json:"existing" doc:"Rows that were on the list already." example:"3"`
	Rejected int                 `json:"rejected" doc:"Rows that could not be taken." example:"1"`
	Errors   []lineErrorResponse `json:"errors" doc:"What is wrong with those, at most 100 of them."`
}

type lineErrorResponse struct {
	Line    int    `json:"line" doc:"The line of the file, 1 for the first." example:"17"`
	Code    string `json:"code" doc:"Stable name of the rule." example:"invalid_address"`
	Message string `json:"message" doc:"What is wrong, in words." example:"This line has no address such as you@example.com."`
}

func (a *API) importSuppressions(w http.ResponseWriter, r *http.Request, p account.Principal) (suppressionImportResponse, error) {
	if p.Domain != "" {
		return suppressionImportResponse{}, errDomainRestricted
	}
	var in importSuppressionsInput
	if err := bind(r, &in); err != nil {
		return suppressionImportResponse{}, err
	}
	var bad fault.FieldErrors
	fallback := parseReason(&bad, in.Reason, suppression.ReasonManual)
	if err := bad.Err(); err != nil {
		return suppressionImportResponse{}, err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != "text/csv" || charset != "" && charset != "utf-8" && charset != "us-ascii" || r.Header.Get("Content-Encoding") != "" {
		return suppressionImportResponse{}, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the file as text/csv in UTF-8, not compressed.")
	}
	body, arrived := limitBody(w, r, maxImportBytes, sendTimeout)
	done, err := a.Suppressions.Import(r.Context(), p.Account, body, fallback)
	if err != nil {
		return suppressionImportResponse{}, err
	}
	arrived()
	out := suppressionImportResponse{Added: done.Added, Existing: done.Existing, Rejected: done.Rejected, Errors: []lineErrorResponse{}}
	for _, f := range done.Faults {
		out.Errors = append(out.Errors, lineErrorResponse(f))
	}
	return out, nil
}

func (a *API) exportSuppressions(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	if p.Domain != "" {
		return errDomainRestricted
	}
	if err := rejectQuery(r); err != nil {
		return err
	}
	file := &suppression.CSVResponseWriter{ResponseWriter: w}
	err := a.Suppressions.Export(r.Context(), p.Account, &revalidatingWriter{Writer: file, api: a, r: r})
	if errors.Is(err, http.ErrBodyNotAllowed) {
		return nil
	}
	if err != nil && file.Started {
		web.AbortResponse(w, r, a.Log, err)
	}
	return err
}
