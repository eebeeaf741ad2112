// SPDX-License-Identifier: Apache-2.0

package dashboard

import "maps"

// Routes returns all routes. Handler must have been called first.
func (d *Dashboard) Routes() []Route { return d.routeList }

// Unfriend removes all exemptions from the limits.
func (d *Dashboard) Unfriend() { d.Users.Logins.Exempt, d.authLimiter.Exempt = nil, nil }

// Unaudited returns the forms without an audit log entry, and the reasons.
func Unaudited() map[string]string { return maps.Clone(unauditedForms) }

// ReferenceBodies returns the JSON bodies of the reference's code samples, by operation.
func ReferenceBodies(document []byte) (map[string]any, error) {
	o, err := readOpenAPI(document)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for _, operations := range o.Paths {
		for _, e := range operations {
			if e.RequestBody == nil {
				continue
			}
			if m, ok := e.RequestBody.Content["application/json"]; ok {
				all[e.OperationID] = o.exampleBody(m.Schema)
			}
		}
	}
	return all, nil
}
