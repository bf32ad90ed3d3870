// SPDX-License-Identifier: Apache-2.0
// The families of ops that the harness walks: one function for each kind of check of each. Those of
// levels compare c->exec with c->spec, those called double with sums in double precision, rules are
// of rule E, times are measured.
#ifndef COPPICE_OPCHECK_FAMILIES_H
#define COPPICE_OPCHECK_FAMILIES_H

#include "opcheck/opcheck.h"

void check_gate_up(struct check *c);
void check_gate_up_rule(struct check *c);
void check_feed_forward_rule(struct check *c);
void check_linear(struct check *c);
void check_linear_rule(struct check *c); // rule E1
void check_linear_double(struct check *c);
void check_linear_time(struct check *c);
void check_weights_time(struct check *c);
void check_conv(struct check *c);
void check_conv_rule(struct check *c);
void check_values(struct check *c);
void check_values_rule(struct check *c);
void check_values_double(struct check *c);
void check_rows(struct check *c);
void check_rows_rule(struct check *c);
void check_rows_double(struct check *c);
void check_rows_time(struct check *c);
void check_attend(struct check *c);
void check_attend_rule(struct check *c);
void check_attend_double(struct check *c);
void check_attend_time(struct check *c);
void check_attend_forms(struct check *c); // called by check_attend_double
// Long contexts; called by the three above.
void check_attend_long_rule(struct check *c);
void check_attend_long_double(struct check *c);
void check_attend_long_time(struct check *c);
void check_turn_rule(struct check *c); // called by check_attend_rule
void check_attend_many_rule(struct check *c), check_attend_many_time(struct check *c);
void check_sparse(struct check *c);
void check_sparse_rule(struct check *c);
void check_sparse_double(struct check *c);
void check_sparse_time(struct check *c);
bool check_has_sparse(struct check *c); // whether the level has its ops; absences are reported
void check_choice(struct check *c);
void check_choice_rule(struct check *c);
void check_choice_double(struct check *c);
void check_gdn(struct check *c);
void check_gdn_rule(struct check *c);
void check_gdn_double(struct check *c);
void check_gdn_time(struct check *c);
bool check_has_gdn(struct check *c); // whether the level has its ops; absences are reported
void check_gdn_many_rule(struct check *c), check_gdn_many_time(struct check *c);
void check_gdn_layer_rule(struct check *c);
void check_moe(struct check *c);
void check_moe_rule(struct check *c);
void check_moe_layer_rule(struct check *c); // called by it
void check_moe_double(struct check *c);
void check_moe_time(struct check *c);
void check_store_rule(struct check *c), check_store_time(struct check *c); // called by these
void check_host_rule(struct check *c);                                     // the same
void check_heads_rule(struct check *c);
void check_heads_time(struct check *c);
void check_mass(struct check *c), check_mass_double(struct check *c);
void check_pages(struct check *c);
void check_pages_rule(struct check *c);
void check_pages_double(struct check *c);
void check_sample(struct check *c);
void check_sample_rule(struct check *c);
void check_sample_double(struct check *c);
void check_sample_time(struct check *c);

#endif
