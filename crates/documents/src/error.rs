//! Errors.

use millrace_wire::Error;
use serde::{Deserialize, Serialize};

/// An error, as documents and answers represent it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorDoc {
    /// Such as `MR2101`.
    pub code: String,
    /// The description of this refusal.
    pub detail: String,
    /// The cause of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The remedy of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl From<&Error> for ErrorDoc {
    fn from(error: &Error) -> Self {
        let code = error.code();
        Self {
            code: code.id().into(),
            detail: error.detail().into(),
            cause: Some(code.cause().into()),
            remedy: Some(code.remedy().into()),
        }
    }
}

impl std::fmt::Display for ErrorDoc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}
