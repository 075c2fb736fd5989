//! What no token from the network may do. Used by a fuzzer and, on the committed corpus, by an ordinary test.

use millrace_security::{
    channel::Offered,
    token::{Rules, TOKEN_MAX_BYTES, Token, inspect, squash},
};

/// Bytes that may be a token, or the first message of a channel: refused, or they come back as themselves, and rules that were read are
/// written as they were there.
pub fn tokens(input: &[u8]) {
    if let Ok(Some((_, used))) = Offered::read(input) {
        assert!(used <= input.len());
        assert!(Offered::read(&input[..used - 1]).ok().flatten().is_none(), "a part of it is taken for all");
    }
    let Ok(token) = Token::from_bytes(input) else {
        let body = input.len().checked_sub(32).map(|end| &input[..end]);
        assert!(body.is_none_or(|body| inspect(body).is_err()), "its body alone is one");
        return;
    };
    assert!(input.len() <= TOKEN_MAX_BYTES);
    assert_eq!(&token.to_bytes()[..], input);
    assert_eq!(&token.to_text().parse::<Token>().expect("it was just written").to_bytes()[..], input);
    let chain = inspect(token.body()).expect("a token has a body");
    for link in chain.blocks() {
        if let Ok(longer) = token.attenuate(&link.rules) {
            let longer = inspect(longer.body()).expect("it was just made");
            assert_eq!(longer.blocks().last().map(|link| &link.rules), Some(&link.rules));
        }
    }
    if let Ok(squashed) = squash(&chain) {
        assert_ne!(squashed, Rules::default());
    }
}
