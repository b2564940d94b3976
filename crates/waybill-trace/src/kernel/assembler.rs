//! Writes programs for the kernel's virtual machine (eBPF), instruction by instruction, with names for jumps. Pure.
//!
//! Only what [`program`](super::program) uses; the numbers are those of `linux/bpf.h`.

/// One instruction as the kernel reads it: operation, registers, offset, number.
pub(crate) type Instruction = [u8; 8];

/// A register. 0 has results; 1 to 5 are arguments and lost in a call; 6 to 9 stay; 10 is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register(u8);

pub(crate) const R0: Register = Register(0);
pub(crate) const R1: Register = Register(1);
pub(crate) const R2: Register = Register(2);
pub(crate) const R3: Register = Register(3);
pub(crate) const R4: Register = Register(4);
pub(crate) const R6: Register = Register(6);
pub(crate) const R7: Register = Register(7);
pub(crate) const R8: Register = Register(8);
pub(crate) const R9: Register = Register(9);
pub(crate) const STACK: Register = Register(10);

/// How many bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Half,
    Word,
    Double,
}

impl Width {
    fn bits(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Double => 0x18,
        }
    }
}

/// What a jump depends on; numbers have no sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    Equal,
    NotEqual,
    Greater,
}

impl If {
    fn bits(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::Greater => 0x20,
            Self::NotEqual => 0x50,
        }
    }
}

/// Functions of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    CurrentPidTgid = 14,
    CurrentUidGid = 15,
    ReadUser = 112,
    ReadKernel = 113,
    ReadKernelString = 115,
    BootNanoseconds = 125,
    RingOutput = 130,
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label stands.
    places: Vec<Option<usize>>,
    /// Which instructions jump, and to which label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label stands before the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.code.len());
        }
    }

    pub(crate) fn set(&mut self, to: Register, number: i32) {
        self.push(0xb7, to, Register(0), 0, number);
    }

    /// A number of 64 bits takes two instructions.
    pub(crate) fn set_wide(&mut self, to: Register, number: u64) {
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        self.push(0x18, to, Register(0), 0, i32::from_le_bytes([a, b, c, d]));
        self.push(0, Register(0), Register(0), 0, i32::from_le_bytes([e, f, g, h]));
    }

    /// A map, by its descriptor in this process.
    pub(crate) fn set_map(&mut self, to: Register, descriptor: i32) {
        self.push(0x18, to, Register(1), 0, descriptor);
        self.push(0, Register(0), Register(0), 0, 0);
    }

    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }

    pub(crate) fn add(&mut self, to: Register, number: i32) {
        self.push(0x07, to, Register(0), 0, number);
    }

    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from, 0, 0);
    }

    pub(crate) fn subtract_register(&mut self, to: Register, from: Register) {
        self.push(0x1f, to, from, 0, 0);
    }

    pub(crate) fn multiply(&mut self, to: Register, number: i32) {
        self.push(0x27, to, Register(0), 0, number);
    }

    pub(crate) fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(0x77, to, Register(0), 0, bits);
    }

    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(0x61 | width.bits(), to, from, offset, 0);
    }

    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(0x63 | width.bits(), to, from, offset, 0);
    }

    pub(crate) fn store_number(&mut self, width: Width, to: Register, offset: i16, number: i32) {
        self.push(0x62 | width.bits(), to, Register(0), offset, number);
    }

    /// Adds to 64 bits of memory that others add to at the same time.
    pub(crate) fn add_shared(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0xdb, to, from, offset, 0);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(0x85, Register(0), Register(0), 0, helper as i32);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, Register(0), Register(0), 0, 0);
    }

    pub(crate) fn jump_if(&mut self, one: Register, how: If, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(0x05 | how.bits(), one, Register(0), 0, number);
    }

    pub(crate) fn jump_if_register(&mut self, one: Register, how: If, other: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(0x0d | how.bits(), one, other, 0, 0);
    }

    pub(crate) fn exit(&mut self) {
        self.push(0x95, Register(0), Register(0), 0, 0);
    }

    /// The whole program; nothing if a label has no place or is too far away.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in &self.jumps {
            let place = (*self.places.get(label.0)?)?;
            let distance = i64::try_from(place).ok()? - i64::try_from(*at).ok()? - 1;
            let [low, high] = i16::try_from(distance).ok()?.to_le_bytes();
            let instruction = self.code.get_mut(*at)?;
            (instruction[2], instruction[3]) = (low, high);
        }
        Some(self.code)
    }

    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, number: i32) {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = number.to_le_bytes();
        self.code.push([operation, from.0 << 4 | to.0, low, high, a, b, c, d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_written_as_the_kernel_reads_them() {
        let mut code = Assembler::default();
        code.set(R0, -1);
        code.load(Width::Double, R1, R6, 8);
        code.store(Width::Word, STACK, -4, R1);
        code.add_shared(R0, 0, R1);
        code.set_map(R1, 7);
        code.call(Helper::ReadKernel);
        let expected: Vec<Instruction> = vec![
            [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x79, 0x61, 8, 0, 0, 0, 0, 0],
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
            [0xdb, 0x10, 0, 0, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 7, 0, 0, 0],
            [0; 8],
            [0x85, 0, 0, 0, 113, 0, 0, 0],
        ];
        assert_eq!(code.finish(), Some(expected));
    }

    #[test]
    fn jumps_are_counted_from_the_next_instruction() {
        let mut code = Assembler::default();
        let (begin, end) = (code.label(), code.label());
        code.place(begin);
        code.jump_if(R0, If::Equal, 0, end);
        code.jump(begin);
        code.place(end);
        code.exit();
        let code = code.finish().unwrap();
        assert_eq!(
            (code[0][..4].to_vec(), code[1][2..4].to_vec()),
            (vec![0x15, 0, 1, 0], vec![0xfe, 0xff])
        );
    }

    #[test]
    fn a_label_without_a_place_makes_no_program() {
        let mut code = Assembler::default();
        let nowhere = code.label();
        code.jump(nowhere);
        assert_eq!(code.finish(), None);
    }
}
