//! The Clockwork method: demand forecasts with their uncertainty, response-time estimates, plans. No I/O, no clock.
