//! Generates env files from pieces that matter to our parser or to bash.

pub(crate) struct Generated {
    pub(crate) text: Vec<u8>,
    /// What the file contains, as a wish: it counts if the parser's answer fits.
    pub(crate) features: Vec<&'static str>,
}

/// Deterministic: the same seed and number give the same file.
pub(crate) struct Generator {
    state: u64,
    text: Vec<u8>,
    features: Vec<&'static str>,
}

impl Generator {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        let state =
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self { state, text: Vec::new(), features: Vec::new() }
    }

    pub(crate) fn file(mut self) -> Generated {
        // Most files are good, or there would be little to compare.
        let odd = self.one_in(5);
        if odd && self.one_in(8) {
            self.features.push("refused: BOM");
            self.push("\u{feff}");
        }
        let mut names = Vec::new();
        for _ in 0..self.below(10) {
            match self.below(8) {
                0 => self.comment_line(),
                1 => self.blank_line(),
                2 if odd => self.odd_line(),
                _ => self.assignment(&mut names),
            }
        }
        if self.one_in(50) {
            self.line_at_a_limit();
        } else if self.one_in(8) {
            // The last line without its line break.
            self.text.pop();
        }
        Generated { text: self.text, features: self.features }
    }

    fn assignment(&mut self, names: &mut Vec<Vec<u8>>) {
        self.blanks();
        let name = self.name(names);
        self.text.extend_from_slice(&name);
        names.push(name);
        self.push("='");
        self.value();
        self.push("'");
        match self.below(8) {
            0 => self.blanks(),
            1 => {
                self.features.push("accepted: comment after a value");
                self.push_one_of(&[" #", "\t# ", "  ## "]);
                self.comment_text();
            }
            _ => {}
        }
        self.push("\n");
    }

    fn name(&mut self, earlier: &[Vec<u8>]) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "A",
            "B",
            "_a",
            "a1",
            "Foo_Bar",
            "HOME",
            "PATH",
            "IFS",
            "LANG",
            "LC_ALL",
            "PS4",
            "if",
            "done",
            "export",
            "function",
            "POSIXLY_CORRECT",
        ];
        const ODD: [&str; 14] = [
            "a.b", "1a", "x:y", "-", "a-b", "!", "%1", "{a,b}", "*", "~", "[x]", "a+b", "./a", "@",
        ];
        match self.below(8) {
            0 if !earlier.is_empty() => {
                self.features.push("accepted: name twice");
                earlier[self.below(earlier.len())].clone()
            }
            1 => {
                self.features.push("accepted: name that is no shell identifier");
                self.pick(&ODD).into()
            }
            _ => self.pick(&WORDS).into(),
        }
    }

    fn value(&mut self) {
        let pieces = self.below(7);
        if pieces == 0 {
            self.features.push("accepted: empty value");
        }
        for _ in 0..pieces {
            self.value_piece();
        }
    }

    fn value_piece(&mut self) {
        const SYNTAX: [&str; 18] = [
            "$HOME",
            "${HOME}",
            "$(echo x)",
            "`echo x`",
            "\\",
            "\\n",
            "\\t",
            "*",
            "~/x",
            "{a,b}",
            "!!",
            "$((1+1))",
            "; echo x",
            "&& x",
            "<(x)",
            "=",
            "<<EOF\n",
            "[x]",
        ];
        let feature = match self.below(12) {
            0 => self.value_bytes("accepted: line break in a value", b"\n"),
            1 => self.value_bytes("accepted: CR in a value", b"\r"),
            2 => self.value_bytes("accepted: number sign in a value", b" #"),
            3 => self.value_bytes("accepted: double quote in a value", b"\""),
            4 => {
                let text = self.pick(&["é", "żółw", "漢字", "🐢", "\u{feff}", "\u{2028}"]);
                self.value_bytes("accepted: UTF-8 in a value", text.as_bytes())
            }
            5 => {
                let bytes: [&[u8]; 6] =
                    [b"\xff", b"\xc3", b"\xe2\x82", b"\x80\x81", b"\xf0\x9f", b"\xed\xa0\x80"];
                let bytes = self.pick(&bytes);
                self.value_bytes("accepted: invalid UTF-8 in a value", bytes)
            }
            6 => {
                // From 1: CTLESC and CTLNUL, 1 and 127, mark quoting inside bash.
                let controls = b"\x01\x02\x07\x08\x0b\x0c\x1b\x1f\x7f\x81\xff\x01\x7f";
                let byte = self.pick(controls);
                self.value_bytes("accepted: control character in a value", &[byte])
            }
            7 | 8 => {
                let syntax = self.pick(&SYNTAX);
                self.value_bytes("accepted: shell syntax in a value", syntax.as_bytes())
            }
            9 => {
                self.push_one_of(&["\nB=\"x\"\n", "\n# no comment\n", " \t ", "\r\n"]);
                return;
            }
            _ => {
                let length = self.below(12);
                for _ in 0..length {
                    let byte = u8::try_from(self.below(255) + 1).expect("at most 255");
                    self.text.push(if byte == b'\'' { b'x' } else { byte });
                }
                return;
            }
        };
        self.features.push(feature);
    }

    fn value_bytes(&mut self, feature: &'static str, bytes: &[u8]) -> &'static str {
        self.text.extend_from_slice(bytes);
        feature
    }

    fn comment_line(&mut self) {
        self.features.push("accepted: comment line");
        self.blanks();
        self.push("#");
        self.comment_text();
        self.push("\n");
    }

    fn comment_text(&mut self) {
        self.push_one_of(&[" why", "' it's", " \"", " \\", " $(x) `", "\r", " A='x'", " é", ""]);
        if self.one_in(6) {
            self.text.extend_from_slice(b"\xff\x01");
        }
    }

    fn blank_line(&mut self) {
        self.blanks();
        self.push("\n");
    }

    /// A line that is nearly good; whatever the parser makes of it, bash must agree if it accepts.
    fn odd_line(&mut self) {
        const ODD: [&str; 40] = [
            "V=a",
            "V=",
            "V=\"a\"",
            "V='a''b'",
            "V='a'b",
            "V='a';",
            "V='a' W='b'",
            "V = 'a'",
            "V ='a'",
            "V= 'a'",
            "='a'",
            "V",
            "export V='a'",
            "V+='a'",
            "V[0]='a'",
            "V[='a'",
            "V='a'#x",
            "V='a",
            "a b='c'",
            "a$b='c'",
            "a;b='c'",
            "a&b='c'",
            "a|b='c'",
            "a<b='c'",
            "a>b='c'",
            "a(b='c'",
            "a)b='c'",
            "a`b='c'",
            "a\\b='c'",
            "a\"b='c'",
            "é='a'",
            "V=$'a'",
            "V='a'\\",
            "\\",
            "V=\\\n'a'",
            "V='a' \\\n",
            "[[='x'",
            "((='x'",
            "}='x'",
            "a[b]c='x'",
        ];
        match self.below(6) {
            0 => {
                self.features.push("refused: NUL");
                let places: [&[u8]; 4] = [b"V='a\0'", b"#\0", b"V\0='a'", b"V='a' \0"];
                let place = self.pick(&places);
                self.text.extend_from_slice(place);
            }
            1 => {
                self.features.push("refused: CR outside quotes");
                self.push_one_of(&["V='a'\r", "\r", "V\r='a'", "V='a' \r"]);
            }
            _ => {
                self.features.push("refused: odd form");
                self.push_one_of(&ODD);
            }
        }
        self.push("\n");
    }

    /// A name, a value or the whole file of one below, exactly, or one above its limit.
    fn line_at_a_limit(&mut self) {
        let over = self.below(3);
        match self.below(3) {
            0 => {
                self.limit_feature(over, "accepted: a name at the limit");
                let name = "n".repeat(127 + over);
                self.push(&format!("{name}='x'\n"));
            }
            1 => {
                self.limit_feature(over, "accepted: a value at the limit");
                let value = self.pick(&["v", "#", "\n", "\\"]).repeat(32_767 + over);
                self.push(&format!("V='{value}'\n"));
            }
            _ => {
                self.limit_feature(over, "accepted: a file at the limit");
                let missing = (65_535 + over).saturating_sub(self.text.len());
                self.text.resize(self.text.len() + missing, b'#');
            }
        }
    }

    fn limit_feature(&mut self, over: usize, at_the_limit: &'static str) {
        self.features.push(match over {
            0 => "accepted: one below a limit",
            1 => at_the_limit,
            _ => "refused: one above a limit",
        });
    }

    fn blanks(&mut self) {
        self.push_one_of(&["", "", "", " ", "\t", "  \t "]);
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn push_one_of(&mut self, choices: &[&str]) {
        let text = self.pick(choices);
        self.push(text);
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
