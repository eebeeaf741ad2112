// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/web"
)

// If reading a file fails before the first byte, the response is a problem; later the connection is
// cut, so that half a file doesn't look complete.
func TestFileBreaksOff(t *testing.T) {
	broken := errors.New("the disk is dead")
	answer := func(body io.Reader) (w *httptest.ResponseRecorder, aborted bool, err error) {
		w = httptest.NewRecorder()
		defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // a sentinel value
		err = (&web.FileResponse{Name: "a", Media: "text/plain", Size: -1, Body: body, Closer: io.NopCloser(nil)}).Serve(w, httptest.NewRequest("GET", "/", nil), slog.New(slog.DiscardHandler))
		return w, false, err
	}
	if w, aborted, err := answer(iotest.ErrReader(broken)); aborted || !errors.Is(err, broken) || len(w.Header()) > 0 {
		t.Errorf("at once: %v, %v, %v", aborted, err, w.Header())
	}
	if _, aborted, _ := answer(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))); !aborted {
		t.Error("half a file was ended as a whole one")
	}
	if w, aborted, err := answer(strings.NewReader("")); aborted || err != nil || w.Code != 200 || w.Header().Get("Content-Disposition") == "" {
		t.Errorf("an empty file: %d %v, %v", w.Code, w.Header(), err)
	}
}
