/** Decodes Huffman-coded strings (RFC 7541, section 5.2 and Appendix B), a byte at a time. */
import { Buffer } from 'node:buffer'
import { latin1 } from '../../../base/latin1.ts'

/** How many bits the code of each symbol has, in base 36. The last is EOS. The code is canonical, so that this defines it. */
const LENGTHS =
  'dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6ca' +
  'd67777777777777777777777878djde6f56565666577666567655677777fbeds' +
  'kmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmn' +
  'qqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu'
const EOS = 256

/**
 * What a byte leads to at each inner node of the tree of codes, at `node << 8 | byte`:
 *
 *     bits  0 to  7  the second symbol that ended in this byte, if there is one
 *           8 to 15  the node that the next byte continues from
 *          16 to 23  the first symbol
 *          24 to 25  how many symbols ended. The shortest code has five bits, so at most two can
 *          26        the string may end here: what follows the last symbol is padding
 *          27        the code is EOS
 */
const STEPS = new Int32Array(256 << 8)
const COUNT = 24
const MAY_END = 1 << 26
const FAULT = 1 << 27

/** Both children of each inner node: inner nodes as they are, symbols as their complement. Node 0 is the root. */
function codeTree(): Int32Array {
  const tree = new Int32Array(2 * 256)
  let nodes = 1
  let code = 0
  let bits = 0
  const symbols = Array.from(LENGTHS, (length, symbol) => ({ length: Number.parseInt(length, 36), symbol }))
  for (const { length, symbol } of symbols.sort((a, b) => a.length - b.length || a.symbol - b.symbol)) {
    code <<= length - bits
    bits = length
    let node = 0
    for (let bit = length - 1; bit > 0; bit--) {
      const child = 2 * node + ((code >>> bit) & 1)
      if (tree[child] === 0) tree[child] = nodes++
      node = tree[child]!
    }
    tree[2 * node + (code & 1)] = ~symbol
    code++
  }
  return tree
}

const TREE = codeTree()
/** The padding is the beginning of EOS, all ones, and shorter than a byte (section 5.2). */
const MAY_END_AT = new Set<number>()
for (let node = 0; MAY_END_AT.size < 8; node = TREE[2 * node + 1]!) MAY_END_AT.add(node)

/** Fills in the steps of all bytes that begin with `bits` bits of `byte`, which have led from a node to `node`. */
function fillSteps(at: number, bits: number, node: number, step: number): void {
  if (bits === 8) {
    STEPS[at] = step | (node << 8) | (MAY_END_AT.has(node) ? MAY_END : 0)
    return
  }
  for (let bit = 0; bit < 2; bit++) {
    const next = at | (bit << (7 - bits))
    const child = TREE[2 * node + bit]!
    if (child >= 0) fillSteps(next, bits + 1, child, step)
    else if (~child === EOS) fillSteps(next, bits + 1, 0, step | FAULT)
    else fillSteps(next, bits + 1, 0, (step + (1 << COUNT)) | (~child << (step < 1 << COUNT ? 16 : 0)))
  }
}
for (let node = 0; node < 256; node++) fillSteps(node << 8, 0, node, 0)

let scratch = Buffer.allocUnsafeSlow(4096)

/** The text of the bytes from `at` to `end`, or undefined if they contain EOS or do not end as they must. */
export function huffmanText(bytes: Uint8Array, at: number, end: number): string | undefined {
  // A byte ends at most two symbols.
  const most = 2 * (end - at)
  if (most > scratch.length) scratch = Buffer.allocUnsafeSlow(2 * most)
  let length = 0
  let step = MAY_END
  for (let from = at; from < end; from++) {
    step = STEPS[(step & 0xff00) | bytes[from]!]!
    if ((step & FAULT) !== 0) return undefined
    scratch[length] = step >>> 16
    scratch[length + 1] = step
    length += (step >>> COUNT) & 3
  }
  return (step & MAY_END) === 0 ? undefined : latin1(scratch, 0, length)
}
