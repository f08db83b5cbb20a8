import { createHash, type Hash } from 'node:crypto'

const BLOCK_BYTES = 65_536

/** Bytes that both ends can generate without sending them. No two blocks of a body are alike. */
export function* patternChunks(totalBytes: number): Generator<Buffer> {
  for (let sent = 0, index = 0; sent < totalBytes; index++) {
    const bytes = Math.min(BLOCK_BYTES, totalBytes - sent)
    yield patternBlock(index).subarray(0, bytes)
    sent += bytes
  }
}

/** SHA-256 of {@link patternChunks}, in hex. */
export function patternDigest(totalBytes: number): string {
  const hash: Hash = createHash('sha256')
  for (const chunk of patternChunks(totalBytes)) hash.update(chunk)
  return hash.digest('hex')
}

function patternBlock(index: number): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES, `block ${index} of a demo body. `)
  block.writeUInt32BE(index, 0)
  return block
}
