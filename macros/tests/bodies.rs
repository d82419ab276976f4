//! Function bodies behave the same with and without `#[forward]`.

#![deny(warnings)]
#![allow(clippy::all, reason = "bodies are odd on purpose")]

#[path = "support/mock.rs"]
pub mod mock;

#[macro_use]
#[path = "support/same.rs"]
mod same;

mod early_returns {
    same! { in_closures, 4.0,
        fn forward(&self, x: &f64) -> f64 {
            let closure = |y: f64| -> i64 {
                if y > 2.0 {
                    return 1;
                }
                let nested = || { return 2u8; };
                i64::from(nested())
            };
            fn function(y: f64) -> u8 {
                return y as u8;
            }
            closure(*x) as f64 + f64::from(function(*x))
        }
    }
    same! { in_let_else, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            let Some(y) = Some(*x).filter(|y| *y > 5.0) else { return *x };
            y
        }
    }
    same! { in_if_let_chains, 6.0,
        fn forward(&self, x: &f64) -> f64 {
            if let Some(y) = Some(*x) && y > 2.0 && let 3.0..4.0 = y {
                return if y > 2.5 { y * 2.0 } else { return y };
            } else if let Some(y) = None::<f64> {
                return y;
            }
            0.0
        }
    }
    same! { in_operands, 3.0,
        #[allow(unreachable_code)]
        fn forward(&self, x: &f64) -> f64 {
            1.0 + f64::from({ return *x; 1u8 })
        }
    }
}

mod tails {
    same! { labeled_block, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            'block: {
                if *x > 2.0 {
                    break 'block *x;
                }
                0.0
            }
        }
    }
    same! { endless_loop, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            loop {
                break *x;
            }
        }
    }
    same! { match_without_commas, 7.0,
        fn forward(&self, x: &f64) -> f64 {
            match *x as u8 {
                1 => 'block: { break 'block 1.0 }
                2 => const { 2.0 }
                3 if let Some(y) = Some(*x) && y > 2.0 => { y + 4.0 }
                4 => loop { break 4.0 }
                5 => if true { 5.0 } else { 6.0 }
                _ => std::process::exit(1),
            }
        }
    }
    same! { diverging_calls, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            if *x > 2.0 {
                return if *x < 4.0 { *x } else { std::process::abort() };
            }
            std::process::exit(1)
        }
    }
    same! { coerced, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            let text: &dyn ToString = &x;
            assert_eq!(text.to_string(), "3");
            if *x > 4.0 { unreachable!() } else { *x }
        }
    }
    same! { conditional_blocks, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            #[cfg(all())]
            { *x }
            #[cfg(any())]
            { x.nothing() }
        }
    }
    same! { conditional_returns, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            #[cfg(any())]
            return x.nothing();
            #[cfg(all())]
            return *x;
        }
    }
    same! { conditional_statements, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            #[cfg(any())]
            let x = x.nothing();
            #[cfg(any())]
            if x.nothing() { return 1; }
            match x {
                #[cfg(any())]
                x => x.nothing(),
                #[cfg(all())]
                x => *x,
            }
        }
    }
    macro_rules! statements {
        ($x:ident) => {
            let y = *$x;
            y
        };
    }
    #[allow(unused_macros)]
    macro_rules! nothing {
        ($($x:tt)*) => {};
    }
    same! { macro_of_statements, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            statements! { x }
        }
    }
    same! { conditional_macros, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            #[cfg(all())]
            statements! { x }
            #[cfg(any())]
            nothing! { x }
        }
    }
    same! { attributes, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            #![allow(unused_assignments)]
            #[allow(clippy::needless_bool)]
            {
                #[allow(unused_variables)]
                let y = 1;
                #[allow(unused_parens)]
                let z = (*x);
                z
            }
        }
    }
    same! { arithmetic, 3.0,
        fn forward(&self, x: &f64) -> f64 {
            -(-x + 1.0) + 1.0 as f64 * 2.0 - if *x > 1.0 { 1.0 } else { 2.0 }
        }
    }
    same! { casts, 1.0,
        fn forward(&self, x: &f64) -> f64 {
            let y = (*x as u8) < 4 && (*x as u8) << 1 == 6;
            y as u8 as f64
        }
    }
    same! { raw_identifiers, 3.0,
        fn forward(&self, r#type: &f64) -> f64 {
            let input = 0.0;
            let _scope = 0.0;
            *r#type + input + _scope
        }
    }
    same! { pattern, 3.0,
        fn forward(&self, &(mut x): &f64) -> f64 {
            x += 1.0;
            x - 1.0
        }
    }
}
