//! Fragments of `macro_rules!` behave the same with and without `#[forward]`.

#![deny(warnings)]

#[path = "support/mock.rs"]
pub mod mock;

#[macro_use]
#[path = "support/same.rs"]
mod same;

/// Expressions equal to 6, as every kind of operand.
mod operands {
    macro_rules! case {
        ($name:ident, $x:ident, $e:expr) => {
            same! { $name, 3.0 + 12.0 + 3.0 - 6.0 + 36.0 + 6.0 + 6.0 + 12.0,
                fn forward(&self, $x: &f64) -> f64 {
                    let y = $e * 2.0;
                    let closure = |half: f64| { half * $e };
                    let square = { let z = $e * $e; z };
                    let one_of_three = match () { () if $e * 2.0 < 7.0 => 0.0, () => 0.0 + $e };
                    if $x.is_nan() {
                        return $e * 100.0;
                    }
                    0.5 * $e + y + closure(0.5) + -$e + square + one_of_three + $e.abs() + self.twice($x)
                }
                fn twice(&self, $x: &f64) -> f64 {
                    2.0 * $e
                }
                /// No parentheses are needed here.
                #[allow(dead_code, unused_braces, clippy::all)]
                fn alone(&self, $x: &f64) -> f64 {
                    let alone = $e;
                    if $e > alone { return $e; }
                    drop(vec![$e, f64::sqrt($e)]);
                    while $e > alone {}
                    $e
                }
            }
        };
    }
    case!(sum, x, x + x);
    case!(difference, x, 9.0 - x);
    case!(block, x, { x + x });
    case!(conditional, x, if *x > 0.0 { x + x } else { 0.0 });
    case!(
        selection,
        x,
        match *x {
            0.0 => 0.0,
            y => y + x,
        }
    );
    case!(cast, x, *x as i32 as f64 + 3.0);
    case!(negation, x, -(-x - x));
    case!(method, x, x.max(6.0));
    case!(parentheses, x, (x + x) + 0.0);
    case!(literal, _x, 6.0f64);

    macro_rules! outer {
        ($name:ident, $x:ident, $e:expr) => {
            case!($name, $x, $e * 2.0);
        };
    }
    outer!(nested, x, x + 0.0);
}

/// A statement that begins with the fragment.
mod leading {
    macro_rules! case {
        ($name:ident, $expected:expr, $x:ident, $e:expr) => {
            same! { $name, $expected, fn forward(&self, $x: &f64) -> f64 { $e * 0.5 } }
        };
    }
    case!(sum, 3.0, x, x + x);
    case!(sum_in_parentheses, 3.0, x, (x + x));
    case!(negative_sum, -3.0, x, -(x + x));

    macro_rules! postfix {
        ($name:ident, $expected:expr, $x:ident, $e:expr) => {
            same! { $name, $expected, fn forward(&self, $x: &f64) -> f64 { $e.abs() } }
        };
    }
    postfix!(method_of_sum, 1.0, x, x - 4.0);
    postfix!(method_of_negation, 3.0, x, -x);
    postfix!(method_of_negative_literal, 2.0, _x, -2.0f64);
    postfix!(method_of_cast, 3.0, x, *x as i32 as f64);
    postfix!(method_of_reference, 3.0, x, &x);
}

/// Operators besides arithmetic.
mod other_operators {
    macro_rules! case {
        ($x:ident, $sum:expr, $range:expr, $closure:expr, $negative:expr, $pair:expr, $small:ty) => {
            same! { all, 50.0 + 8.0 + 3.0 + 20.0 + 2.0 + 12.0 + 3.0 + 2.0 + 4.0,
                #[allow(clippy::redundant_closure_call)]
                fn forward(&self, $x: &f64) -> f64 {
                    let array = [10.0, 20.0, 30.0];
                    let cast = $sum as f64 * 10.0;
                    let length = $range.len() as f64 * 4.0;
                    let called = $closure(*$x);
                    let element = array[$sum - 4];
                    let complement = (!$sum & 2) as f64;
                    let mut sum = 0.0;
                    for number in $sum..$sum + 2 {
                        sum += number as f64 + 0.5;
                    }
                    let power = f64::powi($negative, 2) - -$negative - 3.0;
                    let compared = if $sum as $small < 6 { $pair.0 } else { 0.0 };
                    let not = if !($sum == 1) && $x > &1.0 { 4.0 } else { 0.0 };
                    cast + length + called + element + complement + sum + power + compared + not
                }
            }
        };
    }
    case!(x, 2 + 3usize, 0..2, |x: f64| x, -3.0, (2.0, 3), u8);

    #[derive(PartialEq)]
    struct Width {
        value: f64,
    }
    macro_rules! conditions {
        ($x:ident, $width:expr, $p:pat) => {
            same! { struct_in_a_condition, 4.0,
                fn forward(&self, $x: &f64) -> f64 {
                    if $width == (Width { value: 2.0 }) {
                        return 0.0;
                    }
                    if let Width { value: 2.0 } | $p = $width && !($width == $width) {
                        return 1.0;
                    }
                    match $width {
                        Width { value } if value > *$x => 2.0,
                        Width { value } => value + 1.0,
                    }
                }
            }
        };
    }
    conditions!(x, Width { value: 3.0 }, Width { value: 3.0 });
}

/// Expressions in the tokens of a macro call.
mod macro_calls {
    macro_rules! identity {
        ($e:expr) => {
            $e
        };
    }
    macro_rules! double {
        ($e:expr) => {
            2.0 * $e
        };
    }
    macro_rules! double_trees {
        ($($e:tt)*) => { 0.0 $(+ 2.0 * $e)* };
    }
    macro_rules! case {
        ($name:ident, $x:ident, $e:expr) => {
            same! { $name, 3.0 + 12.0 + 10.0 + 24.0 + 6.0,
                fn forward(&self, $x: &f64) -> f64 {
                    assert!($e * 0.5 > 2.0 && 5.0 < $e, "{}", $e);
                    assert_eq!(format!("{:?} {twice}", -$e, twice = $e * 2.0), "-6.0 12");
                    macro_rules! inner {
                        ($y:expr) => { $y * $e / 6.0 };
                    }
                    let array = vec![$e * 0.5, $e];
                    identity! {
                        array[0] + double!($e) + double!($e - 1.0) + double_trees!($e $e) + inner!($e)
                    }
                }
            }
        };
    }
    case!(sum, x, x + x);
    case!(block, x, { x + x });
    case!(conditional, x, if *x > 0.0 { x + x } else { 0.0 });
    case!(cast, x, *x as i32 as f64 + 3.0);
    case!(method, x, x.max(6.0));
    case!(literal, _x, 6.0);
    macro_rules! outer {
        ($name:ident, $x:ident, $e:expr) => {
            case!($name, $x, $e * 2.0);
        };
    }
    outer!(nested, x, x + 0.0);

    macro_rules! negative {
        ($x:ident, $literal:literal, $e:expr) => {
            same! { negative_literal, 2.0 + 2.0 - 3.0 - 6.0 + 3.0,
                fn forward(&self, $x: &f64) -> f64 {
                    identity!($literal.abs()) + $literal.abs() + identity!($e)
                        + double!($e) + identity!($e.abs())
                }
            }
        };
    }
    negative!(_x, -2.0f64, -3.0f64);
}

/// Fragments of every kind, in the block and in the tokens of a macro call.
mod kinds {
    macro_rules! identity {
        ($($tokens:tt)*) => { $($tokens)* };
    }
    macro_rules! number {
        ($literal:literal, $t:ty, $p:path, $name:ident) => {
            <$t>::from($literal) + $p($name) + <$t as Default>::default()
        };
    }
    macro_rules! is {
        ($e:expr, $p:pat) => {
            matches!($e, $p)
        };
    }
    macro_rules! run {
        ($s:stmt; $block:block $life:lifetime) => {{
            $s;
            $life: loop { break $life ($block) }
        }};
    }
    macro_rules! types_and_patterns {
        (
            $x:ident, $negative:literal, $t:ty, $p:path, $either:pat, $any:pat, $range:pat, $meta:meta,
            $v:vis, $item:item,
            $input:ty, $bounds:ty, $length:expr
        ) => {
            same! { types_and_patterns, 1.0 + 100.5 + 110.5 + 12.0 + 8.0,
                #[$meta]
                $v fn forward(&self, $x: $input) -> $t {
                    $item
                    let x = *$x;
                    let mut sum: $t = <$t>::from($negative) + $p(x);
                    for (count, number) in [(1, &2), (3, &7)] {
                        if let ($either, &$range) = (count, number) {
                            sum += 100.0;
                        }
                        sum += match count {
                            $either if *number > 6 => 110.0,
                            -5..=0 | $range => 0.0,
                            _ => 0.5,
                        };
                        let closure = |$any: i32| 0.25;
                        sum += closure(count);
                    }
                    let dynamic: &$bounds = &"text";
                    assert_eq!(dynamic.to_string(), "text");
                    let array: [$t; $length * 2] = [3.0; $length * 2];
                    sum += array.iter().sum::<$t>();
                    sum += number!($negative, $t, $p, x) * 8.0;
                    assert!(is!(1, $either) && is!(5, $range) && !is!(7, $either));
                    assert!(identity!(x as $t < 4.0 && x as u8 as $t > 2.0));
                    identity! { #[$meta] $item }
                    sum
                }
            }
        };
    }
    types_and_patterns!(
        x,
        -2.0f32,
        f64,
        f64::abs,
        1 | 3,
        1 | _,
        2..=6,
        allow(clippy::all),
        pub(self),
        const _: () = ();,
        &f64,
        dyn ToString + Sync,
        1 + 1
    );

    macro_rules! statements {
        ($x:ident, $let:stmt, $expression:stmt, $unit:block, $value:block, $life:lifetime) => {
            same! { statements, 1.5 + 1.5 + 1.5 + 1.5,
                #[allow(redundant_semicolons, unused_braces)]
                fn forward(&self, $x: &f64) -> f64 {
                    $let
                    $let;
                    $expression;
                    $unit
                    let condition = $x > &1.0;
                    if condition $unit else $unit
                    $unit
                    match condition {
                        true => $unit
                        _ => $unit,
                    }
                    let mut sum = if condition $value else $value;
                    sum += $life: loop { break $life ($value) };
                    sum += run!($let; $value $life);
                    identity! { $let; $expression; $unit }
                    sum + $value
                }
            }
        };
    }
    statements!(x, let _unused: f64 = 1.0, drop(String::new()), { let _unused = 1; }, { 1.5 }, 'outer);
}

/// Fragments in the types of a model and of its forward function.
mod types {
    use super::mock::{Build, Builder, Linear, Stack};

    macro_rules! case {
        ($layer:ty, $length:expr, $model:ty, $input:ty, $pair:ty, $x:ident, $e:expr) => {
            #[meshwright_macros::model(crate = crate::mock)]
            struct Stacks {
                #[sharded(tp = "col")]
                _layer: $layer,
                _layers: Stack<$layer, { $length * 3 }>,
            }
            #[meshwright_macros::forward(crate = crate::mock)]
            impl $model {
                fn forward(&self, $x: $input) -> $pair {
                    ($e * 2.0, 1)
                }
            }
        };
    }
    case!(Linear<u8, u16>, 1 + 1, Stacks, &f64, (f64, u8), x, x + x);

    #[test]
    fn types() {
        let mut builder = Builder::new();
        let model = Stacks::build(&mut builder);
        assert_eq!(builder.log().len(), 1 + 6);
        super::mock::SCOPES.take();
        assert_eq!(model.forward(&1.5), (6.0, 1));
        assert_eq!(super::mock::SCOPES.take(), ["Stacks::forward"]);
    }
}
