//! The composition point: namespace, dispatch, functions, admission.
