/** Shape of a routes file. What a shape cannot say is checked by `compile.ts`. */
import { z } from 'zod'
import { MAX_TIMER_MS } from '../protocol/base/durations.ts'
import type { RouteTable } from './table.ts'

const headerRules = z.strictObject({
  set: z.record(z.string(), z.string()).optional(),
  remove: z.array(z.string()).optional(),
})

/** Node's timers hold 31 bits. */
const durationMs = z.int().min(1).max(MAX_TIMER_MS)

const match = z.strictObject({
  hosts: z.array(z.string()).min(1).optional(),
  path: z.string().optional(),
  methods: z.array(z.string()).optional(),
  headers: z.record(z.string(), z.string()).optional(),
})

const cors = z.strictObject({
  origins: z.array(z.string()),
  methods: z.array(z.string()).optional(),
  headers: z.array(z.string()).optional(),
  credentials: z.boolean().optional(),
  exposeHeaders: z.array(z.string()).optional(),
  maxAge: z.int().min(0).optional(),
})

const route = z.strictObject({
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, 'must be letters, digits, ".", "_" or "-", at most 63'),
  match,
  target: z.string().optional(),
  answer: z
    .strictObject({
      status: z.int().optional(),
      body: z.string().optional(),
      contentType: z.string().optional(),
    })
    .optional(),
  rewrite: z
    .strictObject({
      stripPrefix: z.string().optional(),
      replacePrefix: z.strictObject({ from: z.string(), to: z.string() }).optional(),
    })
    .optional(),
  host: z.enum(['keep', 'target']).optional(),
  headers: headerRules.optional(),
  responseHeaders: headerRules.optional(),
  timeouts: z.strictObject({ connectMs: durationMs.optional(), headMs: durationMs.optional() }).optional(),
  limits: z.strictObject({ bodyBytes: z.int().min(0).optional() }).optional(),
  tls: z
    .strictObject({
      ca: z.string().optional(),
      serverName: z.string().optional(),
      insecure: z.boolean().optional(),
      http2: z.boolean().optional(),
    })
    .optional(),
  trustErrors: z.boolean().optional(),
  retries: z
    .strictObject({ attempts: z.int().min(0).max(5).optional(), idempotencyKey: z.boolean().optional() })
    .optional(),
  cors: cors.optional(),
  allow: z.record(z.string(), z.array(z.string())).optional(),
})

export const routeTableSchema = z.strictObject({
  routes: z.array(route),
  resolve: z.record(z.string(), z.string()).optional(),
}) satisfies z.ZodType<RouteTable>
