// @module-tag slow
import { testRows } from './row.ts'

testRows('client-update', 'client-restart', 'takeover')
