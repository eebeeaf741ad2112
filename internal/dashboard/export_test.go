// SPDX-License-Identifier: Apache-2.0

package dashboard

import "maps"

// Routes returns all routes. Handler must have been called first.
func (d *Dashboard) Routes() []Route { return d.routeList }

// Unfriend removes all exemptions from the limits.
func (d *Dashboard) Unfriend() { d.Users.Logins.Exempt, d.authLimiter.Exempt = nil, nil }

// Unaudited returns the forms without an audit log entry, and the reasons.
func Unaudited() map[string]string { return maps.Clone(unauditedForms) }
