// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/doctor"
)

// look runs one check.
func look(t *testing.T, check func(context.Context, *doctor.Report)) []doctor.Finding {
	t.Helper()
	return doctor.Run(t.Context(), []doctor.Check{{Name: "it", Func: check}})
}

// expect requires one finding with this status and text; every finding that is not OK must have a
// fix.
func expect(t *testing.T, check func(context.Context, *doctor.Report), status doctor.Status, part string) {
	t.Helper()
	found := look(t, check)
	for _, f := range found {
		if f.Status != doctor.OK && f.Fix == "" {
			t.Errorf("nothing to do about it: %+v", f)
		}
	}
	if len(found) != 1 || found[0].Status != status || !strings.Contains(found[0].Message, part) {
		t.Errorf("%+v, want %s with %q", found, status, part)
	}
}
